"""Resize and Upsample: every mode of the specification, one axis after the other.

Where sizes and scale are known, the tables of taps are constants; else kernels compute them at run
time from the sizes, scales and regions that are read then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.resample import (
    NO_SIZE,
    combine,
    coordinates,
    count_taps,
    fitted_sizes,
    outside,
    scaled_sizes,
    summing_dtype,
    tables,
)
from frontends.computations.resample_tables import (
    CEIL_WHERE_SHRINKING,
    Mode,
    static_coordinates,
    static_tables,
    tap_count,
)
from frontends.dims import Dim, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.run_time_size import counted, parts, read_sizes, refusing
from frontends.onnx.ratio import NotARatio, Ratio, RatioArithmetic
from frontends.onnx.registry import converter

# Tables of indices and weights are constants in the model; no image is that large.
_MAX_TABLE = 1 << 24


@dataclass(frozen=True)
class Axis:
    """How one axis is resampled.

    Attributes:
        axis: Its place.
        length: Input elements.
        output: Output elements.
        scale: Output / input; None where the sizes decide; a float64 tensor (1,) where it is known
            only at run time.
        region: The cropped part, from 0 to 1; a float64 tensor (2,) where it is known only then.
    """

    axis: int
    length: Dim
    output: Dim
    scale: float | relax.Expr | None
    region: tuple[float, float] | relax.Expr = (0.0, 1.0)

    @property
    def is_known(self) -> bool:
        """Tell whether the tables of taps can be computed now."""
        return (
            is_static(self.length)
            and is_static(self.output)
            and not isinstance(self.scale, relax.Expr)
            and not isinstance(self.region, relax.Expr)
        )


@converter("Upsample")
def upsample_plane(op: Op) -> Any:
    """Scale height and width by two attributes (opset 1)."""
    return _upsample(op, [1.0, 1.0, float(op.attr("height_scale")), float(op.attr("width_scale"))])


@converter("Upsample", since=7)
def upsample_attribute(op: Op) -> Any:
    """Scale by an attribute (opset 7 and 8)."""
    return _upsample(op, op.attr("scales"))


@converter("Upsample", since=9)
@converter("Resize", since=10)
def upsample_input(op: Op) -> Any:
    """Scale by an input, coordinates asymmetric (Upsample from opset 9, Resize of opset 10)."""
    known = op.constant(1)
    return _upsample(op, None if known is None else known.tolist())


def _upsample(op: Op, scales: list[float] | None) -> Any:
    kind = {"bilinear": "linear", "trilinear": "linear"}.get(op.attr("mode"), op.attr("mode"))
    mode = Mode(kind=kind or "nearest", coordinates="asymmetric", rounding=CEIL_WHERE_SHRINKING)
    if mode.kind not in ("nearest", "linear"):
        raise op.unsupported(f"mode {mode.kind!r}")
    axes, regions = list(range(op.ndim())), [(0.0, 1.0)] * op.ndim()
    return _resample(op, _plan_by_scales(op, axes, scales, 1, regions), mode)


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
    regions = _regions(op, len(axes)) if mode.crops else [(0.0, 1.0)] * len(axes)
    if op.has(3) and op.shape(3)[0] != 0:
        plan = _plan_by_sizes(op, axes, regions)
    else:
        known = op.constant(2) if op.has(2) else None
        plan = _plan_by_scales(op, axes, None if known is None else known.tolist(), 2, regions)
    return _resample(op, plan, mode)


def _regions(op: Op, count: int) -> list[Any]:
    """Return the region of each axis: numbers, or tensors of two numbers."""
    known = op.constant(1)
    if known is not None:
        lows, highs = known.astype("float64").reshape(2, count)
        return [(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]
    op.state(1, [2 * count])
    wide = op.emit(R.astype(op.x(1), "float64"))
    return [
        op.te(lambda roi, a=a: te.compute([2], lambda end: roi(end * count + a)), wide, name="roi")
        for a in range(count)
    ]


def _plan_by_sizes(op: Op, axes: list[int], regions: list[Any]) -> list[Axis]:
    lengths = [op.shape()[axis] for axis in axes]
    if op.dims(3) is None:
        op.state(3, [len(axes)])
    outputs = op.runtime_dims(3)
    if len(outputs) != len(axes):
        raise InvalidModel(f"{len(outputs)} sizes for {len(axes)} axes")
    outputs = [_possible(op, *entry) for entry in zip(axes, lengths, outputs, strict=True)]
    policy = op.attr("keep_aspect_ratio_policy", "stretch")
    scales: list[Any] = [None] * len(axes)
    if policy != "stretch":
        larger = policy == "not_smaller"
        if all(is_static(dim) for dim in (*outputs, *lengths)):
            ratios = [int(size) / int(n) for size, n in zip(outputs, lengths, strict=True) if n]
            ratio = (max if larger else min)(ratios, default=1.0)
            outputs = [math.floor(ratio * int(length) + 0.5) for length in lengths]
            scales = [ratio] * len(axes)
        else:
            count = len(axes)
            fitted = op.te(
                lambda dims: fitted_sizes(dims[:count], dims[count:], larger=larger),
                name="fitted_sizes", dims=[*outputs, *lengths],
            )  # fmt: skip
            sizes, scale = parts(op, fitted, 2)
            outputs, scales = read_sizes(op, sizes), [scale] * count
    return [Axis(*entry) for entry in zip(axes, lengths, outputs, scales, regions, strict=True)]


def _possible(op: Op, axis: int, length: Dim, output: Dim) -> Dim:
    """Return the size an axis gets, which is 0 where it has no element to make others of."""
    if is_static(length) and length > 0 or op.arithmetic.equal(length, output):
        return output
    if is_static(length) and is_static(output):
        raise InvalidModel(f"axis {axis} has no element to make {output} of")
    op.require(tirx.any(prim(length) > 0, prim(output) == 0), f"axis_{axis}_has_an_element")
    return 0 if is_static(length) else output


def _plan_by_scales(
    op: Op, axes: list[int], known: list[float] | None, place: int, regions: list[Any]
) -> list[Axis]:
    lengths = [op.shape()[axis] for axis in axes]
    scales: list[Any]
    if known is not None:
        if len(known) != len(axes):
            raise InvalidModel(f"{len(known)} scales for {len(axes)} axes")
        scales = [float(scale) for scale in known]
        if not all(0 < scale < math.inf for scale in scales):
            raise InvalidModel(f"scales are positive numbers, not {scales}")
        outputs = [scaled(op, n, scale) for n, scale in zip(lengths, scales, strict=True)]
    else:
        op.state(place, [len(axes)])
        sizes = op.te(
            lambda given, dims: scaled_sizes(given, dims), op.x(place), name="sizes", dims=lengths
        )
        outputs = read_sizes(op, refusing(op, sizes, NO_SIZE, "scales are positive numbers"))
        wide = op.emit(R.astype(op.x(place), "float64"))
        scales = [
            op.te(lambda x, a=a: te.compute([1], lambda _: x(a)), wide, name="scale")
            for a in range(len(axes))
        ]
    return [Axis(*entry) for entry in zip(axes, lengths, outputs, scales, regions, strict=True)]


def scaled(op: Op, length: Dim, scale: float) -> Dim:
    """Return floor(length * scale), of a symbolic length in integers where scale is a fraction.

    TVM's bounds of loops know integer division, and nothing of `floor`.
    """
    if is_static(length):
        return math.floor(float(np.float32(length) * np.float32(scale)))
    if float(scale).is_integer():
        return op.arithmetic.simplify(length * int(scale))
    ratios = RatioArithmetic(op.arithmetic, "float32")
    try:
        return ratios.floor(ratios.multiply(Ratio(length), Ratio.of_float(scale)))
    except NotARatio:
        product = tirx.Cast("float32", length) * tirx.const(scale, "float32")
        return tirx.Cast("int64", tirx.floor(product))


def _resample(op: Op, plan: list[Axis], mode: Mode) -> Any:
    x: relax.Expr | None = None
    masks: list[tuple[int, relax.Expr]] = []
    steps = [axis for axis in plan if not _is_identity(op, axis, mode)]
    for axis in steps:
        x = op.x() if x is None else x
        # Rounded once, after the last axis: integers would lose up to 1 at each.
        dtype = op.dtype() if axis is steps[-1] else summing_dtype(op.dtype())
        factor = _integer_factor(op, axis)
        downward = mode.rounding in ("floor", CEIL_WHERE_SHRINKING)  # a factor of at least 1
        floor = mode.coordinates == "asymmetric" and downward
        if mode.kind == "nearest" and floor and factor:
            x = _repeat(op, x, axis, factor)
            continue
        found, mask = (_known_tables if axis.is_known else _run_time_tables)(op, axis, mode)
        if mask is not None:
            masks.append((axis.axis, mask))
        x = op.te(
            lambda data, index, *weight, a=axis.axis, dtype=dtype: combine(
                data, a, index, weight[0] if weight else None, dtype
            ),
            x, *found, name="resize",
        )  # fmt: skip
    if x is None:
        return op.value(0)
    for place, mask in masks:
        column = [1] * op.ndim()
        column[place] = -1
        fits = op.emit(R.reshape(mask, column))
        x = op.emit(R.where(fits, op.const(mode.extrapolation), x))
    return x


def _is_identity(op: Op, axis: Axis, mode: Mode) -> bool:
    """Tell whether the axis surely stays as it is."""
    if mode.crops or not op.arithmetic.equal(axis.length, axis.output):
        return False
    if axis.scale is None:
        return True
    return not isinstance(axis.scale, relax.Expr) and axis.scale == 1.0


def _integer_factor(op: Op, axis: Axis) -> int | None:
    """Return output / input if that is surely an integer."""
    if isinstance(axis.scale, relax.Expr):
        return None
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


def _known_tables(op: Op, axis: Axis, mode: Mode) -> tuple[list[relax.Expr], relax.Expr | None]:
    """Return constant tables, and a constant mask of what lies outside if anything does."""
    length, output = int(axis.length), int(axis.output)
    scale = axis.scale if axis.scale is not None else output / max(length, 1)
    if output * tap_count(mode, scale) > _MAX_TABLE:
        raise op.unsupported(f"an axis of {output} elements, {tap_count(mode, scale)} taps each")
    at = static_coordinates(length, output, scale, axis.region, mode)
    indices, weights = static_tables(at, length, scale, mode)
    found = [op.const(indices, "int32")]
    if weights is not None:
        found.append(op.const(weights, "float64" if op.dtype() == "float64" else "float32"))
    mask = (at < 0) | (at > length - 1)
    return found, op.const(mask, "bool") if mode.crops and mask.any() else None


def _run_time_tables(op: Op, axis: Axis, mode: Mode) -> tuple[list[relax.Expr], relax.Expr | None]:
    """Emit kernels that compute the tables, and the mask of what lies outside."""
    numbers = _numbers(op, axis)
    sizes = [axis.length, axis.output]
    at = op.te(
        lambda n, dims: coordinates(n, dims[0], dims[1], mode),
        numbers, name="resize_coordinates", dims=sizes,
    )  # fmt: skip
    count: Dim = mode.taps
    if mode.antialias and mode.kind != "nearest":
        if isinstance(axis.scale, float):
            count = tap_count(mode, axis.scale)
        else:
            count = counted(op, op.te(lambda n: count_taps(n, mode), numbers, name="count_taps"))
    dtype = "float64" if op.dtype() == "float64" else "float32"
    found = op.te(
        lambda place, n, dims: tables(place, n, dims[0], dims[1], mode, dtype),
        at, numbers, name="resize_tables", dims=[axis.length, count],
    )  # fmt: skip
    together = [found] if mode.kind == "nearest" else parts(op, found, 2)
    if not mode.crops:
        return together, None
    mask = op.te(lambda x, dims: outside(x, dims[0]), at, name="outside", dims=[axis.length])
    return together, mask


def _numbers(op: Op, axis: Axis) -> relax.Expr:
    """Return scale, begin and end of the region as float64 tensor (3,)."""
    if isinstance(axis.region, relax.Expr):
        region = axis.region
    else:
        region = op.const(axis.region, "float64")
    if axis.scale is None:
        scale = op.te(
            lambda dims: te.compute(
                [1], lambda _: dims[1].astype("float64") / dims[0].astype("float64")
            ),
            name="scale", dims=[prim(axis.length), prim(axis.output)],
        )  # fmt: skip
    elif isinstance(axis.scale, relax.Expr):
        scale = axis.scale
    else:
        scale = op.const([axis.scale], "float64")
    return op.emit(R.concat([scale, region], axis=0))
