"""Resize and Upsample: every mode of the specification, one axis after the other.

An axis is resampled from a few taps: output `o` is the sum of `x[index(o, k)] * weight(o, k)`.
With static sizes the taps are tables computed here; with symbolic sizes they are expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from frontends.errors import InvalidModel
from frontends.onnx.dims import Dim, is_static, prim
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter


@dataclass(frozen=True)
class Axis:
    """How one axis is resampled; `scale` is output / input, None where the sizes decide."""

    axis: int
    length: Dim
    output: Dim
    scale: float | None
    region: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Mode:
    """The attributes of Resize that select its arithmetic."""

    kind: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


@converter("Upsample", since=7)
def upsample_attribute(op: Op) -> Any:
    """Scale by an attribute (opset 7 and 8)."""
    return _upsample(op, op.attr("scales"))


@converter("Upsample", since=9)
def upsample_input(op: Op) -> Any:
    """Scale by an input (opset 9)."""
    return _upsample(op, op.require_constant(1, "scales").tolist())


@converter("Resize", since=10)
def resize_asymmetric(op: Op) -> Any:
    """Scale by an input, coordinates asymmetric (opset 10)."""
    return _upsample(op, op.require_constant(1, "scales").tolist())


def _upsample(op: Op, scales: list[float]) -> Any:
    kind = {"bilinear": "linear", "trilinear": "linear"}.get(op.attr("mode"), op.attr("mode"))
    mode = Mode(kind=kind or "nearest", coordinates="asymmetric", rounding="floor")
    plan = [
        Axis(axis, length, scaled(op, length, scale), scale)
        for axis, (length, scale) in enumerate(zip(op.shape(), scales, strict=True))
    ]
    return _resample(op, plan, mode)


@converter("Resize", since=11)
def resize(op: Op) -> Any:
    """Resize to scales or sizes (opset 11 on; `axes`, `antialias` and aspect ratio from 18)."""
    mode = Mode(
        op.attr("mode", "nearest"),
        op.attr("coordinate_transformation_mode", "half_pixel"),
        op.attr("nearest_mode", "round_prefer_floor"),
        float(op.attr("cubic_coeff_a", -0.75)),
        bool(op.attr("exclude_outside", 0)),
        bool(op.attr("antialias", 0)),
        float(op.attr("extrapolation_value", 0.0)),
    )
    axes = [normalize_axis(axis, op.ndim()) for axis in op.attr("axes") or range(op.ndim())]
    lengths = [op.shape()[axis] for axis in axes]
    regions = [(0.0, 1.0)] * len(axes)
    if mode.coordinates == "tf_crop_and_resize":
        roi = op.require_constant(1, "roi").astype("float64").reshape(2, -1)
        regions = [(float(low), float(high)) for low, high in roi.T]
    scales: list[float | None]
    if op.has(3) and op.shape(3)[0] != 0:
        outputs = op.runtime_dims(3)
        if len(outputs) != len(axes):
            raise InvalidModel(f"{len(outputs)} sizes for {len(axes)} axes")
        scales = [None] * len(axes)
        policy = op.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [int(size) / int(n) for size, n in zip(outputs, lengths, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            outputs = [math.floor(ratio * int(length) + 0.5) for length in lengths]
            scales = [ratio] * len(axes)
    else:
        given = [float(scale) for scale in op.require_constant(2, "scales")]
        if len(given) != len(axes):
            raise InvalidModel(f"{len(given)} scales for {len(axes)} axes")
        outputs = [scaled(op, n, scale) for n, scale in zip(lengths, given, strict=True)]
        scales = list(given)
    plan = [Axis(*entry) for entry in zip(axes, lengths, outputs, scales, regions, strict=True)]
    return _resample(op, plan, mode)


def scaled(op: Op, length: Dim, scale: float) -> Dim:
    """Return floor(length * scale); a symbolic length takes integer and 1/integer scales."""
    if is_static(length):
        return math.floor(float(np.float32(length) * np.float32(scale)))
    if float(scale).is_integer():
        return op.arithmetic.simplify(length * int(scale))
    inverse = 1.0 / scale
    if abs(inverse - round(inverse)) < 1e-6:
        return op.arithmetic.truncdiv(length, round(inverse))
    product = tirx.Cast("float32", length) * tirx.const(scale, "float32")
    return tirx.Cast("int64", tirx.floor(product))


def _resample(op: Op, plan: list[Axis], mode: Mode) -> Any:
    x: relax.Expr | None = None
    outside: list[tuple[int, np.ndarray]] = []
    for axis in plan:
        same = op.arithmetic.equal(axis.length, axis.output)
        if same and mode.coordinates != "tf_crop_and_resize":
            continue
        x = op.x() if x is None else x
        factor = _integer_factor(op, axis)
        floor = mode.coordinates == "asymmetric" and mode.rounding == "floor"
        if mode.kind == "nearest" and floor and factor:
            x = _repeat(op, x, axis, factor)
        elif is_static(axis.length) and is_static(axis.output):
            coordinates = static_coordinates(axis, mode)
            if mode.coordinates == "tf_crop_and_resize":
                limit = int(axis.length) - 1
                outside.append((axis.axis, (coordinates < 0) | (coordinates > limit)))
            x = _by_table(op, x, axis, *taps_table(axis, mode, coordinates))
        else:
            x = _by_expression(op, x, axis, mode)
    if x is None:
        return op.value(0)
    for where, mask in outside:
        if mask.any():
            x = _fill(op, x, where, mask, mode.extrapolation)
    return x


def _integer_factor(op: Op, axis: Axis) -> int | None:
    """Return output / input if that is surely an integer."""
    if axis.scale is not None:
        return int(axis.scale) if float(axis.scale).is_integer() else None
    factor = op.arithmetic.truncdiv(axis.output, axis.length)
    if is_static(factor) and op.arithmetic.equal(axis.length * factor, axis.output):
        return int(factor)
    return None


def _repeat(op: Op, x: relax.Expr, axis: Axis, factor: int) -> relax.Expr:
    """Repeat each element: nearest upsampling by an integer."""

    def compute(data: te.Tensor, sizes: list[Any]) -> te.Tensor:
        dims = list(data.shape)
        dims[axis.axis] = sizes[0]

        def pick(*i: Any) -> Any:
            places = list(i)
            places[axis.axis] = tirx.floordiv(i[axis.axis], factor)
            return data(*places)

        return te.compute(dims, pick, name="upsample")

    return op.te(compute, x, name="upsample", dims=[axis.output])


def static_coordinates(axis: Axis, mode: Mode) -> np.ndarray:
    """Return the input coordinate of each output element, float64."""
    length, output = int(axis.length), int(axis.output)
    places = np.arange(output, dtype="float64")
    scale = axis.scale if axis.scale is not None else output / length
    kind = mode.coordinates
    if kind == "asymmetric":
        return places / scale
    if kind == "align_corners":
        return places * (length - 1) / (output - 1) if output > 1 else places * 0
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
        low, high = axis.region
        if output == 1:
            return places * 0 + 0.5 * (low + high) * (length - 1)
        return low * (length - 1) + places * (high - low) * (length - 1) / (output - 1)
    raise InvalidModel(f"unknown coordinate_transformation_mode {kind!r}")


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


def taps_table(axis: Axis, mode: Mode, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return indices [output, taps] and weights, None where the only weight is 1."""
    limit = int(axis.length) - 1
    if mode.kind == "nearest":
        nearest = _ROUND[mode.rounding](x)
        return np.clip(nearest, 0, limit).astype("int32")[:, None], None
    scale = axis.scale if axis.scale is not None else int(axis.output) / int(axis.length)
    shrink = min(scale, 1.0) if mode.antialias else 1.0
    support = 1.0 if mode.kind == "linear" else 2.0
    if mode.antialias:
        start = math.floor(-support / shrink) + 1
        count = 2 - 2 * start if mode.kind == "linear" else 4 - 2 * start
    else:
        start, count = (0, 2) if mode.kind == "linear" else (-1, 4)
    base = np.ceil(x) - 1 if mode.antialias else np.floor(x)
    ratio = (x - base)[:, None]
    offsets = np.arange(start, start + count)[None, :]
    distance = (offsets - ratio) * shrink
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


def _by_table(
    op: Op, x: relax.Expr, axis: Axis, indices: np.ndarray, weights: np.ndarray | None
) -> relax.Expr:
    """Resample one axis from tables of taps."""
    count = indices.shape[1]
    where = axis.axis

    def compute(data: te.Tensor, index: te.Tensor, *weight: te.Tensor) -> te.Tensor:
        dims = list(data.shape)
        dims[where] = indices.shape[0]
        wide = data.dtype if data.dtype in ("float32", "float64") else "float32"

        def tap(i: tuple[Any, ...], k: Any) -> Any:
            places = list(i)
            places[where] = index(i[where], k)
            return data(*places)

        if not weight:
            return te.compute(dims, lambda *i: tap(i, 0), name="resize")
        if count <= 4:

            def pick(*i: Any) -> Any:
                total = tap(i, 0).astype(wide) * weight[0](i[where], 0).astype(wide)
                for k in range(1, count):
                    total = total + tap(i, k).astype(wide) * weight[0](i[where], k).astype(wide)
                return total.astype(data.dtype)

            return te.compute(dims, pick, name="resize")
        k = te.reduce_axis((0, count), "k")
        summed = te.compute(
            dims,
            lambda *i: te.sum(tap(i, k).astype(wide) * weight[0](i[where], k).astype(wide), axis=k),
            name="resize",
        )
        if wide == data.dtype:
            return summed
        return te.compute(dims, lambda *i: summed(*i).astype(data.dtype), name="resize_cast")

    tables = [op.const(indices, "int32")]
    if weights is not None:
        tables.append(op.const(weights, "float32"))
    return op.te(compute, x, *tables, name="resize")


def _fill(op: Op, x: relax.Expr, axis: int, mask: np.ndarray, value: float) -> relax.Expr:
    """Put the extrapolation value where the coordinate lies outside the input."""
    from tvm.relax import op as R

    column = [1] * op.ndim()
    column[axis] = mask.size
    return op.emit(R.where(op.const(mask.reshape(column), "bool"), op.const(value), x))


def _by_expression(op: Op, x: relax.Expr, axis: Axis, mode: Mode) -> relax.Expr:
    """Resample one axis of symbolic size: nearest, linear or cubic, without antialiasing."""
    if mode.antialias or mode.coordinates not in (
        "asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric"
    ):  # fmt: skip
        raise op.unsupported(f"{mode.coordinates} or antialias with symbolic sizes")

    def compute(data: te.Tensor, sizes: list[Any]) -> te.Tensor:
        taps = _Taps(sizes[0], sizes[1], axis.scale, mode)
        dims = list(data.shape)
        dims[axis.axis] = sizes[1]

        def pick(*i: Any) -> Any:
            total: Any = None
            for index, weight in taps(i[axis.axis]):
                places = list(i)
                places[axis.axis] = index
                part = data(*places)
                if weight is None:
                    return part
                part = part.astype("float32") * weight
                total = part if total is None else total + part
            return total.astype(data.dtype)

        return te.compute(dims, pick, name="resize")

    return op.te(compute, x, name="resize", dims=[axis.length, axis.output])


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


class _Taps:
    """Indices and weights of an output element as expressions of symbolic sizes."""

    def __init__(self, length: Any, output: Any, scale: float | None, mode: Mode) -> None:
        self._size, self._mode = prim(length), mode
        self._length = tirx.Cast("float32", prim(length))
        self._output = tirx.Cast("float32", prim(output))
        self._scale = _number(scale) if scale is not None else self._output / self._length

    def _coordinate(self, o: Any) -> Any:
        kind, one, half = self._mode.coordinates, _number(1), _number(0.5)
        place = tirx.Cast("float32", o)
        centered = (place + half) / self._scale - half
        if kind == "asymmetric":
            return place / self._scale
        if kind == "align_corners":
            return place * (self._length - one) / tirx.max(self._output - one, one)
        if kind == "pytorch_half_pixel":
            return tirx.Select(self._output > one, centered, _number(0))
        if kind == "half_pixel_symmetric":
            adjustment = self._output / (self._scale * self._length)
            return self._length * half * (one - adjustment) + centered
        return centered

    def _clamp(self, index: Any) -> Any:
        return tirx.max(tirx.min(tirx.Cast("int64", index), self._size - 1), 0)

    def __call__(self, o: Any) -> list[tuple[Any, Any]]:
        at, one = self._coordinate(o), _number(1)
        if self._mode.kind == "nearest":
            half = _number(0.5)
            rounded = {
                "floor": tirx.floor(at),
                "ceil": tirx.ceil(at),
                "round_prefer_floor": tirx.ceil(at - half),
                "round_prefer_ceil": tirx.floor(at + half),
            }[self._mode.rounding]
            return [(self._clamp(rounded), None)]
        base = tirx.floor(at)
        t = at - base
        if self._mode.kind == "linear":
            return [(self._clamp(base), one - t), (self._clamp(base + one), t)]
        a = _number(self._mode.cubic)

        def near(d: Any) -> Any:
            return ((a + _number(2)) * d - (a + _number(3))) * d * d + one

        def far(d: Any) -> Any:
            return ((a * d - _number(5) * a) * d + _number(8) * a) * d - _number(4) * a

        weights = [far(t + one), near(t), near(one - t), far(_number(2) - t)]
        return [(self._clamp(base + _number(k - 1)), weight) for k, weight in enumerate(weights)]
