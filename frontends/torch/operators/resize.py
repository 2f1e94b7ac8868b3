"""Interpolation over one to three spatial axes, one axis after the other.

torch samples at 1 / scale where a scale is given, and at input / output where a size is. Where both
sizes are known the tables of taps are constants; else kernels compute them when the model runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from frontends.computations.kernel import as_dtype
from frontends.computations.resample import combine, coordinates, tables
from frontends.computations.resample_tables import Mode, static_coordinates, static_tables
from frontends.computations.sample_points import wide_float
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import same_shape

# torch hands over a list of scales, None for sizes (`vec`), or one scale after the other.
_FORMS = ("vec", "default")
_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


def _forms(*names: str) -> list[str]:
    return [f"aten.{name}.{form}" for name in names for form in _FORMS]


@converter(*_forms(*_LINEAR))
def linear(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
    """Linear interpolation between the two nearest elements of each axis."""
    return _interpolate(b, x, "linear", align, scales)


@converter(*_forms(*(f"upsample_nearest{rank}d" for rank in (1, 2, 3))))
def nearest(b: GraphBuilder, x: Value, size: Any, *scales: Any) -> relax.Expr:
    """The element at floor(i / scale)."""
    return _resample(b, b.tensor(x), Mode("nearest", "asymmetric", "floor"), scales)


@converter(*_forms(*(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3))))
def nearest_exact(b: GraphBuilder, x: Value, size: Any, *scales: Any) -> relax.Expr:
    """The element at floor((i + 0.5) / scale)."""
    return _resample(b, b.tensor(x), Mode("nearest", "tf_half_pixel_for_nn", "floor"), scales)


@converter(*_forms("upsample_bicubic2d"))
def bicubic(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
    """Bicubic interpolation (a = -0.75) between the sixteen nearest elements."""
    return _interpolate(b, x, "cubic", align, scales)


@converter(*_forms("_upsample_bilinear2d_aa"))
def smooth_linear(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
    """Bilinear interpolation with a kernel that widens where the image shrinks."""
    return _interpolate(b, x, "linear", align, scales, antialias=True)


@converter(*_forms("_upsample_bicubic2d_aa"))
def smooth_cubic(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
    """Bicubic interpolation (a = -0.5) with a kernel that widens where the image shrinks."""
    return _interpolate(b, x, "cubic", align, scales, antialias=True)


def _interpolate(
    b: GraphBuilder,
    x: Value,
    kind: str,
    align: bool,
    scales: Sequence[Any],
    antialias: bool = False,
) -> relax.Expr:
    mode = Mode(
        kind,
        "align_corners" if align else "half_pixel",
        cubic=-0.5 if antialias else -0.75,
        exclude_outside=antialias,
        antialias=antialias,
    )
    return _resample(b, b.tensor(x), mode, () if align else scales)


def _resample(b: GraphBuilder, x: relax.Expr, mode: Mode, scales: Sequence[Any]) -> relax.Expr:
    """Resample every spatial axis; `scales` are in either of `_FORMS`, or missing."""
    shape = b.shape(x)
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    for axis, scale in itertools.zip_longest(range(2, len(shape)), given):
        length, output = shape[axis], b.result_shape[axis]
        if same_shape([length], [output]) and (
            scale in (None, 1.0) or _copies_axes(mode, len(shape))
        ):
            continue
        if _is_image_of_nearest(mode, len(shape)) and same_shape([length * 2], [output]):
            scale = 2.0  # torch reads i >> 1, though the scale were 2.3
        found = _tables(b, length, output, scale, mode)
        x = b.te(
            lambda data, index, *weight, a=axis: combine(data, a, index, *(weight or [None])),
            x, *found, name="resize",
        )  # fmt: skip
    return x


def _copies_axes(mode: Mode, rank: int) -> bool:
    """Tell whether torch copies along an axis that keeps its length, whatever scale is given.

    A scale of 1.3 leaves 3 elements 3. `compute_source_index_and_lambda` and `nearest_idx` in
    ATen's `UpSample.h`; images alone use the latter.
    """
    return mode.kind == "linear" or mode.antialias or _is_image_of_nearest(mode, rank)


def _is_image_of_nearest(mode: Mode, rank: int) -> bool:
    return mode.kind == "nearest" and mode.coordinates == "asymmetric" and rank == 4


def _tables(
    b: GraphBuilder, length: Size, output: Size, scale: float | None, mode: Mode
) -> list[relax.Expr]:
    """Return indices (output, taps) and, but for nearest, weights."""
    weights_dtype = wide_float(b.dtype)
    if isinstance(length, int) and isinstance(output, int):
        ratio = scale if scale is not None else output / max(length, 1)
        if mode.kind == "nearest":
            return [relax.const(_nearest_places(length, output, scale, mode), "int32")]
        if mode.antialias and mode.coordinates == "align_corners":
            # torch centres the widened kernel between pixels all the same.
            step = (length - 1) / (output - 1) if output > 1 else 0.0
            at, ratio = (np.arange(output) + 0.5) * step - 0.5, 1 / max(step, 1.0)
        else:
            at = static_coordinates(length, output, ratio, (0.0, 1.0), mode)
        indices, weights = static_tables(at, length, ratio, mode)
        assert weights is not None
        return [relax.const(indices, "int32"), relax.const(weights, weights_dtype)]
    if mode.antialias:
        raise b.unsupported("antialiasing of a symbolic size")
    return _run_time_tables(b, [length, output], scale, mode, weights_dtype)


def _nearest_places(length: int, output: int, scale: float | None, mode: Mode) -> np.ndarray:
    """Return the places to read, rounded as torch rounds: in float32."""
    step = np.float32(1.0 / scale) if scale is not None else np.float32(length) / np.float32(output)
    half = np.float32(0.5 if mode.coordinates == "tf_half_pixel_for_nn" else 0.0)
    at = np.floor((np.arange(output, dtype="float32") + half) * step)
    return np.clip(at, 0, length - 1).astype("int32")[:, None]


def _run_time_tables(
    b: GraphBuilder, sizes: Sequence[Size], scale: float | None, mode: Mode, dtype: str
) -> list[relax.Expr]:
    def numbers_of(dims: list[Any]) -> te.Tensor:
        """Return output / input, and the region, which is all of the axis."""
        real = [as_dtype(dim, "float64") for dim in dims]
        ratio = real[1] / real[0] if scale is None else tirx.const(scale, "float64")
        return te.compute(
            [3],
            lambda i: tirx.Select(i == 0, ratio, tirx.Cast("float64", i - 1)),
            name="resize_numbers",
        )

    numbers = b.te(numbers_of, name="resize_numbers", dims=sizes)
    at = b.te(
        lambda n, dims: coordinates(n, dims[0], dims[1], mode),
        numbers, name="resize_coordinates", dims=sizes,
    )  # fmt: skip
    found = b.te(
        lambda place, n, dims: tables(place, n, dims[0], mode.taps, mode, dtype),
        at, numbers, name="resize_tables", dims=[sizes[0]],
    )  # fmt: skip
    return [found] if mode.kind == "nearest" else b.parts(found, 2)
