"""Resampling of one axis from taps: which input elements make up an output element.

Output `o` is the sum over k of `x[index(o, k)] * weight(o, k)`. Here the tables are computed with
NumPy, where sizes and scale are known; `resample` computes the same ones at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# What nearest meant before opset 11: up where the axis shrinks, down elsewhere. Coordinates are
# float32 then: 7 / float32(0.7) is 7 / 0.699999988, which float64 would round up to 11.
CEIL_WHERE_SHRINKING = "ceil_where_shrinking"


@dataclass(frozen=True)
class Mode:
    """How to resample.

    Attributes:
        kind: nearest, linear or cubic.
        coordinates: How an output place maps to an input place (ONNX's Resize names the ways).
        rounding: What nearest means: floor, ceil, round_prefer_floor, round_prefer_ceil, or
            `CEIL_WHERE_SHRINKING`.
        cubic: The parameter of the cubic kernel.
        exclude_outside: Give elements outside no weight, instead of repeating the border.
        antialias: Widen the kernel where the axis shrinks.
        extrapolation: What a cropped region reads outside of the input.
    """

    kind: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0

    @property
    def support(self) -> int:
        """Return how far the kernel reaches to either side."""
        return 1 if self.kind == "linear" else 2

    @property
    def taps(self) -> int:
        """Return the number of taps without antialiasing."""
        return {"nearest": 1, "linear": 2, "cubic": 4}[self.kind]

    @property
    def crops(self) -> bool:
        """Tell whether coordinates may lie outside, where `extrapolation` is read."""
        return self.coordinates == "tf_crop_and_resize"


def tap_count(mode: Mode, scale: float) -> int:
    """Return the number of taps for output / input = `scale`."""
    if not mode.antialias or mode.kind == "nearest":
        return mode.taps
    return 2 * math.ceil(mode.support / min(scale, 1.0))


def static_coordinates(
    length: int, output: int, scale: float, region: tuple[float, float], mode: Mode
) -> np.ndarray:
    """Return the input coordinate of each output element, float64.

    Where corners are aligned, the output ends at scale * length, which need not be an integer.

    Args:
        length: Input elements.
        output: Output elements.
        scale: Output / input, as far as rounding the sizes left it.
        region: Part of the input to crop, from 0 to 1; read by tf_crop_and_resize.
        mode: How to resample.
    """
    places = np.arange(output, dtype="float64")
    kind = mode.coordinates
    if kind == "asymmetric":
        return places / scale
    if kind == "align_corners":
        return places * (length - 1) / (scale * length - 1) if output > 1 else places * 0
    if kind == "pytorch_half_pixel" and output == 1:
        return places * 0 - 0.0
    if kind in ("half_pixel", "pytorch_half_pixel"):
        return (places + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        adjustment = output / (scale * length)
        return length / 2 * (1 - adjustment) + (places + 0.5) / scale - 0.5
    if kind == "tf_half_pixel_for_nn":
        return (places + 0.5) / scale
    if kind == "tf_crop_and_resize":
        low, high = region
        if output == 1:
            return places * 0 + 0.5 * (low + high) * (length - 1)
        return low * (length - 1) + places * (high - low) * (length - 1) / (scale * length - 1)
    raise ValueError(f"unknown coordinate_transformation_mode {kind!r}")


_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


def cubic_weight(distance: np.ndarray, a: float) -> np.ndarray:
    """Return the cubic convolution kernel (Keys, 1981) at a distance."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def static_tables(
    x: np.ndarray, length: int, scale: float, mode: Mode
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return indices [output, taps] and weights, None where the only weight is 1.

    Args:
        x: The coordinates.
        length: Input elements.
        scale: Output / input.
        mode: How to resample.
    """
    limit = length - 1
    if mode.kind == "nearest":
        rounding = mode.rounding
        if rounding == CEIL_WHERE_SHRINKING:
            x, rounding = x.astype("float32"), "ceil" if scale < 1 else "floor"
        nearest = _ROUND[rounding](x)
        return np.clip(nearest, 0, limit).astype("int32")[:, None], None
    shrink = min(scale, 1.0) if mode.antialias else 1.0
    count = tap_count(mode, scale)
    base = np.ceil(x) - 1 if mode.antialias else np.floor(x)
    offsets = np.arange(1 - count // 2, 1 + count // 2)[None, :]
    distance = (offsets - (x - base)[:, None]) * shrink
    if mode.kind == "linear":
        weights = np.clip(1 - np.abs(distance), 0, 1)
    else:
        weights = cubic_weight(distance, mode.cubic)
    indices = base[:, None] + offsets
    if mode.exclude_outside:
        weights = np.where((indices < 0) | (indices > limit), 0.0, weights)
    if mode.antialias or mode.exclude_outside:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, limit).astype("int32"), weights
