"""Interpolation over one to three spatial axes, one axis after the other.

torch samples at 1 / scale where a scale is given, and at input / output where a size is. Where both
sizes are known the tables of taps are constants; else kernels compute them when the model runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from frontends.computations.resample import combine, coordinates, tables
from frontends.computations.resample_tables import Mode, static_coordinates, static_tables
from frontends.torch.graph_builder import GraphBuilder, Size, Value, same_shape
from frontends.torch.registry import converter

_RANKS = (1, 2, 3)
_LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}


def _register_linear(rank: int) -> None:
    @converter(f"aten.{_LINEAR[rank]}.vec")
    def by_list(b: GraphBuilder, x: Value, size: Any, align: bool, scales: Any) -> relax.Expr:
        return _interpolate(b, x, "linear", align, scales)

    @converter(f"aten.{_LINEAR[rank]}.default")
    def by_axis(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
        return _interpolate(b, x, "linear", align, scales)


def _register_nearest(rank: int) -> None:
    for name, exact in (
        (f"upsample_nearest{rank}d", False),
        (f"_upsample_nearest_exact{rank}d", True),
    ):

        @converter(f"aten.{name}.vec")
        def by_list(
            b: GraphBuilder, x: Value, size: Any, scales: Any, exact: bool = exact
        ) -> relax.Expr:
            return _nearest(b, x, exact, scales)

        @converter(f"aten.{name}.default")
        def by_axis(
            b: GraphBuilder, x: Value, size: Any, *scales: Any, exact: bool = exact
        ) -> relax.Expr:
            return _nearest(b, x, exact, scales)


for _rank in _RANKS:
    _register_linear(_rank)
    _register_nearest(_rank)


@converter("aten.upsample_bicubic2d.vec")
def bicubic(b: GraphBuilder, x: Value, size: Any, align: bool, scales: Any) -> relax.Expr:
    """Bicubic interpolation (a = -0.75) between the sixteen nearest elements."""
    return _interpolate(b, x, "cubic", align, scales)


@converter("aten.upsample_bicubic2d.default")
def bicubic_sizes(b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any) -> relax.Expr:
    """As `bicubic`, its scales given one by one."""
    return _interpolate(b, x, "cubic", align, scales)


@converter("aten._upsample_bilinear2d_aa.vec")
def smooth_linear(b: GraphBuilder, x: Value, size: Any, align: bool, scales: Any) -> relax.Expr:
    """Bilinear interpolation with a kernel that widens where the image shrinks."""
    return _interpolate(b, x, "linear", align, scales, antialias=True)


@converter("aten._upsample_bilinear2d_aa.default")
def smooth_linear_sizes(
    b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any
) -> relax.Expr:
    """As `smooth_linear`, its scales given one by one."""
    return _interpolate(b, x, "linear", align, scales, antialias=True)


@converter("aten._upsample_bicubic2d_aa.vec")
def smooth_cubic(b: GraphBuilder, x: Value, size: Any, align: bool, scales: Any) -> relax.Expr:
    """Bicubic interpolation (a = -0.5) with a kernel that widens where the image shrinks."""
    return _interpolate(b, x, "cubic", align, scales, antialias=True)


@converter("aten._upsample_bicubic2d_aa.default")
def smooth_cubic_sizes(
    b: GraphBuilder, x: Value, size: Any, align: bool, *scales: Any
) -> relax.Expr:
    """As `smooth_cubic`, its scales given one by one."""
    return _interpolate(b, x, "cubic", align, scales, antialias=True)


def _interpolate(
    b: GraphBuilder, x: Value, kind: str, align: bool, scales: Any, antialias: bool = False
) -> relax.Expr:
    mode = Mode(
        kind,
        "align_corners" if align else "half_pixel",
        cubic=-0.5 if antialias else -0.75,
        exclude_outside=antialias,
        antialias=antialias,
    )
    return _resample(b, b.tensor(x), mode, [None] * 3 if align else scales)


def _nearest(b: GraphBuilder, x: Value, exact: bool, scales: Any) -> relax.Expr:
    """The element at floor(i / scale), or at floor((i + 0.5) / scale) if exact."""
    places = "tf_half_pixel_for_nn" if exact else "asymmetric"
    return _resample(b, b.tensor(x), Mode("nearest", places, "floor"), scales)


def _resample(b: GraphBuilder, x: relax.Expr, mode: Mode, scales: Any) -> relax.Expr:
    shape = b.shape(x)
    given = list(scales or []) or [None] * (len(shape) - 2)
    for axis, scale in zip(range(2, len(shape)), given, strict=False):
        length, output = shape[axis], b.result_shape[axis]
        if same_shape([length], [output]) and scale in (None, 1.0):
            continue
        found = _tables(b, length, output, scale, mode)
        x = b.te(
            lambda data, index, *weight, a=axis: combine(data, a, index, *(weight or [None])),
            x, *found, name="resize",
        )  # fmt: skip
    return x


def _tables(
    b: GraphBuilder, length: Size, output: Size, scale: float | None, mode: Mode
) -> list[relax.Expr]:
    """Return indices (output, taps) and, but for nearest, weights."""
    weights_dtype = "float64" if b.dtype == "float64" else "float32"
    if isinstance(length, int) and isinstance(output, int):
        ratio = scale if scale is not None else output / max(length, 1)
        if mode.kind == "nearest":
            return [relax.const(_nearest_places(length, output, scale, mode), "int32")]
        if mode.antialias and mode.coordinates == "align_corners":
            # torch centres the widened kernel between pixels all the same.
            step = (length - 1) / (output - 1) if output > 1 else 0.0
            at, ratio = (np.arange(output) + 0.5) * step - 0.5, 1 / max(step, 1.0)
        elif mode.coordinates == "align_corners":
            at = static_coordinates(length, output, output / max(length, 1), (0.0, 1.0), mode)
        else:
            at = static_coordinates(length, output, ratio, (0.0, 1.0), mode)
        indices, weights = static_tables(at, length, ratio, mode)
        assert weights is not None
        return [relax.const(indices, "int32"), relax.const(weights.astype(weights_dtype))]
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
        real = [tirx.Cast("float64", dim) for dim in dims]
        ratio = real[1] / real[0] if scale is None else tirx.const(scale, "float64")
        return te.compute(
            [3],
            lambda i: tirx.Select(i == 0, ratio, tirx.Cast("float64", i - 1)),
            name="resize_numbers",
        )

    numbers = b.te(numbers_of, name="resize_numbers", dims=[_symbolic(size) for size in sizes])
    at = b.te(
        lambda n, dims: coordinates(n, dims[0], dims[1], mode),
        numbers, name="resize_coordinates", dims=sizes,
    )  # fmt: skip
    found = b.te(
        lambda place, n, dims: tables(place, n, dims[0], mode.taps, mode, dtype),
        at, numbers, name="resize_tables", dims=[sizes[0]],
    )  # fmt: skip
    return [found] if mode.kind == "nearest" else b.parts(found, 2)


def _symbolic(size: Size) -> Any:
    return tirx.IntImm("int64", size) if isinstance(size, int) else size
