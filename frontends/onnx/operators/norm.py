"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import all_static, dims_of, dtype_of, is_static
from frontends.onnx.op import Op, normalize_axis, numpy_dtype
from frontends.onnx.registry import converter

# A sum over more channels than this is a loop, not a chain of additions.
_UNROLLED_WINDOW = 16


@converter("BatchNormalization")
def batch_norm_test_flag(op: Op) -> Any:
    """Normalize each channel; without `is_test` by the batch's own statistics (opset 1 to 6)."""
    return _batch_norm(op, not op.attr("is_test", 0))


@converter("BatchNormalization", since=7)
def batch_norm_by_outputs(op: Op) -> Any:
    """Normalize each channel; who reads statistics wants the batch's own (opset 7 to 13)."""
    return _batch_norm(op, any(op.node.output[1:]))


@converter("BatchNormalization", since=14)
def batch_norm_training_mode(op: Op) -> Any:
    """Normalize each channel by running statistics, or in training mode by the batch's own."""
    return _batch_norm(op, bool(op.attr("training_mode", 0)))


def _batch_norm(op: Op, training: bool) -> Any:
    """Normalize in the dtype of the statistics where that is wider than the data's.

    In training the batch's mean and (biased) variance are used, and the running ones moved towards
    them by 1 - momentum; opset 14 on returns those, opsets before both.
    """
    dtype, wide = op.dtype(0), _wider(op.dtype(0), op.dtype(3))
    x, epsilon = _cast(op, op.x(0), wide), float(op.attr("epsilon", 1e-5))
    own = list(op.shape()[1 : 1 + op.ndim(1)])
    parameters = [_cast(op, op.x(place), wide) for place in range(1, 5)]
    column = [1, *own, *([1] * (op.ndim() - 1 - op.ndim(1)))]
    each_place = op.ndim(1) > 1  # spatial=0 of opset 1 to 8: a parameter for each element
    if not training and not each_place:
        triple = op.emit(R.nn.batch_norm(x, *parameters, axis=1, epsilon=epsilon, training=False))
        return triple[0] if dtype == wide else _cast(op, triple[0], dtype)
    scale, bias, mean, variance = (
        op.emit(exact_reshape(op.as_shape(parameter, own), relax.ShapeExpr(column)))
        for parameter in parameters
    )
    more: list[relax.Expr] = []
    if training:
        axes = [0] if each_place else [0, *range(2, op.ndim())]
        exact = _cast(op, x, accumulator(wide))
        own_mean = op.emit(R.mean(exact, axes, True))
        centered = op.emit(R.subtract(exact, own_mean))
        own_variance = op.emit(R.mean(op.emit(R.multiply(centered, centered)), axes, True))
        batch = [_cast(op, own_mean, wide), _cast(op, own_variance, wide)]
        keep = float(op.attr("momentum", 0.9))
        for old, new in zip((mean, variance), batch, strict=True):
            kept = op.emit(R.multiply(old, op.const(keep, wide)))
            moved = op.emit(R.add(kept, op.emit(R.multiply(new, op.const(1 - keep, wide)))))
            more.append(moved)
        mean, variance = batch
        if op.opset < 14:
            more += batch
    deviation = op.emit(R.sqrt(op.emit(R.add(variance, op.const(epsilon, wide)))))
    factor = op.emit(R.divide(scale, deviation))
    unit = op.emit(R.multiply(op.emit(R.subtract(x, mean)), factor))
    y = _cast(op, R.add(unit, bias), dtype)
    flat = relax.ShapeExpr(own)
    statistics = [_cast(op, exact_reshape(item, flat), op.dtype(3)) for item in more]
    return (y, *statistics)[: len(op.node.output)]


def accumulator(dtype: str) -> str:
    """Return the dtype in which to take sums of `dtype`."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _wider(left: str, right: str) -> str:
    """Return the dtype of the two that has more bits."""
    return max(left, right, key=lambda dtype: numpy_dtype(dtype).itemsize)


def _cast(op: Op, x: relax.Expr, dtype: str) -> relax.Expr:
    # A constant stays in place: passes look for constant operands, not for names of constants.
    if isinstance(x, relax.Var | tvm.ir.GenericConst) and dtype_of(x) == dtype:
        return x
    bound = op.emit(x)
    return bound if dtype_of(bound) == dtype else op.emit(R.astype(bound, dtype))


@converter("LayerNormalization")
def layer_norm(op: Op) -> Any:
    """Normalize over the axes from `axis` on; mean and 1/deviation only where they are read."""
    first, rank = op.axis(-1), op.ndim()
    axes = list(range(first, rank))
    epsilon = float(op.attr("epsilon", 1e-5))
    x = op.x()
    wanted = [bool(name) for name in op.node.output[1:]]
    sizes = op.shape()[first:]
    scale = _full_size(op, 1, sizes)
    if op.has(2):
        bias = _full_size(op, 2, sizes)
    elif all_static(sizes):
        bias = op.const(np.zeros(sizes))
    else:
        bias = op.emit(R.zeros(relax.ShapeExpr(list(sizes)), op.dtype()))
    result = R.nn.layer_norm(x, scale, bias, axes, epsilon)
    if not any(wanted):
        return result
    wide = op.emit(R.astype(x, "float32")) if op.dtype() != "float32" else x
    average, inverse = statistics(op, wide, axes, epsilon)
    return (result, average, inverse)[: 1 + len(wanted)]


def _full_size(op: Op, place: int, sizes: Sequence[Any]) -> relax.Expr:
    """Return a scale or bias with one element for each normalized one."""
    if list(op.shape(place)) == list(sizes):
        return op.x(place)
    known = op.constant(place)
    if known is not None and all_static(sizes):
        return op.const(np.broadcast_to(known, [int(size) for size in sizes]))
    x = op.fitted(op.x(place), sizes)
    if list(dims_of(x)) == list(sizes):
        return x
    return op.emit(R.broadcast_to(x, relax.ShapeExpr(list(sizes))))


def statistics(
    op: Op, x: relax.Expr, axes: list[int], epsilon: float
) -> tuple[relax.Expr, relax.Expr]:
    """Return mean and 1 / deviation over `axes`, which stay with size 1."""
    average = op.emit(R.mean(x, axes, True))
    return average, inverse_root_mean_square(op, op.emit(R.subtract(x, average)), axes, epsilon)


def inverse_root_mean_square(op: Op, x: relax.Expr, axes: list[int], epsilon: float) -> relax.Expr:
    """Return 1 / sqrt(mean(x^2) + epsilon) over `axes`, which stay with size 1."""
    mean = op.emit(R.mean(op.emit(R.multiply(x, x)), axes, True))
    root = op.emit(R.sqrt(op.emit(R.add(mean, op.const(epsilon, dtype_of(x))))))
    return op.emit(R.divide(op.const(1.0, dtype_of(x)), root))


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(op: Op) -> Any:
    """Divide by the root of the mean square over the axes from `axis` on.

    SimplifiedLayerNormalization gives the inverse of the root as second output.
    """
    first, shape = op.axis(-1), list(op.shape())
    scale, epsilon = _full_size(op, 1, shape[first:]), float(op.attr("epsilon", 1e-5))
    axes = list(range(first, len(shape)))
    if first > 0:
        result = R.nn.rms_norm(op.x(), scale, axes, epsilon)
    else:  # Relax's operator needs an axis that is not normalized.
        x = op.emit(exact_reshape(op.x(), relax.ShapeExpr([1, *shape])))
        normal = op.emit(R.nn.rms_norm(x, scale, [axis + 1 for axis in axes], epsilon))
        result = exact_reshape(normal, relax.ShapeExpr(shape))
    if not any(op.node.output[1:]):
        return result
    wide = _cast(op, op.x(), "float32")
    return result, inverse_root_mean_square(op, wide, axes, epsilon)


@converter("InstanceNormalization")
def instance_norm(op: Op) -> relax.Expr:
    """Normalize each channel of each sample over its spatial axes."""
    axes = list(range(2, op.ndim()))
    return _scaled(op, op.x(), axes, [1, op.shape()[1], *([1] * len(axes))])


def _scaled(op: Op, x: relax.Expr, axes: list[int], column: list[Any]) -> relax.Expr:
    """Normalize `x` over `axes`, then scale and shift by inputs 1 and 2 shaped as `column`."""
    dtype = dtype_of(x)
    wide = accumulator(dtype)
    x = _cast(op, x, wide)
    average, inverse = statistics(op, x, axes, float(op.attr("epsilon", 1e-5)))
    unit = op.emit(R.multiply(op.emit(R.subtract(x, average)), inverse))
    scale, shift = (
        op.emit(
            exact_reshape(
                _cast(op, op.as_shape(op.x(place), [column[1]]), wide), relax.ShapeExpr(column)
            )
        )
        for place in (1, 2)
    )
    return _cast(op, R.add(op.emit(R.multiply(unit, scale)), shift), dtype)


@converter("GroupNormalization", since=18)
def group_norm_by_group(op: Op) -> relax.Expr:
    """Normalize groups of channels; scale and bias have one element a group (opset 18 to 20)."""
    groups = op.count("num_groups")
    grouped = _grouped(op, groups)
    axes = list(range(2, op.ndim() + 1))
    result = _scaled(op, grouped, axes, [1, groups, *([1] * len(axes))])
    return exact_reshape(op.emit(result), relax.ShapeExpr(list(op.shape())))


@converter("GroupNormalization", since=21)
def group_norm_by_channel(op: Op) -> relax.Expr:
    """Normalize groups of channels; scale and bias have one element a channel (opset 21 on)."""
    groups, dtype = op.count("num_groups"), op.dtype()
    for place in (1, 2):
        op.state(place, [op.shape()[1]])
    # Relax's operator takes no bfloat16.
    wide = accumulator(dtype) if dtype == "bfloat16" else dtype
    x, scale, bias = (_cast(op, op.x(place), wide) for place in range(3))
    axes = list(range(2, op.ndim()))
    normal = R.nn.group_norm(x, scale, bias, groups, 1, axes, float(op.attr("epsilon", 1e-5)))
    return normal if wide == dtype else _cast(op, normal, dtype)


def _grouped(op: Op, groups: int) -> relax.Expr:
    shape = op.shape()
    each = op.arithmetic.truncdiv(shape[1], groups)
    return op.emit(exact_reshape(op.x(), relax.ShapeExpr([shape[0], groups, each, *shape[2:]])))


@converter("LRN")
def local_response_norm(op: Op) -> relax.Expr:
    """Divide by a power of the squares summed over neighbouring channels."""
    size = int(op.attr("size"))
    alpha, beta, bias = op.attr("alpha", 1e-4), op.attr("beta", 0.75), op.attr("bias", 1.0)
    dtype, shape = op.dtype(), op.shape()
    wide = accumulator(dtype)
    x = _cast(op, op.x(), wide)
    before, after = (size - 1) // 2, size // 2
    if is_static(shape[1]):  # farther than that there are no channels
        before, after = min(before, int(shape[1])), min(after, int(shape[1]))
    squares = op.emit(R.multiply(x, x))
    widths = [0, 0, before, after, *([0] * (2 * (op.ndim() - 2)))]
    padded = op.emit(R.nn.pad(squares, widths))
    total = None
    if before + after < _UNROLLED_WINDOW:
        for offset in range(before + after + 1):
            part = op.emit(R.strided_slice(padded, [1], [offset], [shape[1] + offset]))
            total = part if total is None else op.emit(R.add(total, part))
    else:
        total = op.te(lambda x: _sums_of_channels(x, before + after + 1), padded, name="lrn")
    scaled = op.emit(R.multiply(total, op.const(alpha / size, wide)))
    base = op.emit(R.add(scaled, op.const(bias, wide)))
    return _cast(op, R.divide(x, op.emit(R.power(base, op.const(beta, wide)))), dtype)


def _sums_of_channels(x: te.Tensor, window: int) -> te.Tensor:
    """Return the sums over `window` channels, starting at each channel that has so many."""
    offset = te.reduce_axis((0, window), name="offset")
    dims = [x.shape[0], x.shape[1] - (window - 1), *x.shape[2:]]
    return te.compute(dims, lambda n, c, *i: te.sum(x(n, c + offset, *i), axis=offset), name="sums")


@converter("LpNormalization")
def lp_normalization(op: Op) -> relax.Expr:
    """Divide by the 1- or 2-norm along an axis; where the norm is 0 the result is 0."""
    axis, x = op.axis(-1), op.x()
    if int(op.attr("p", 2)) == 1:
        norm = op.emit(R.sum(op.emit(R.abs(x)), [axis], True))
    else:
        norm = op.emit(R.sqrt(op.emit(R.sum(op.emit(R.multiply(x, x)), [axis], True))))
    empty = op.emit(R.equal(norm, op.const(0)))
    return R.divide(x, op.emit(R.where(empty, op.const(1), norm)))


@converter("MeanVarianceNormalization")
def mean_variance_norm(op: Op) -> relax.Expr:
    """Take off the mean and divide by the deviation, plus 1e-9, over `axes`."""
    axes = [normalize_axis(axis, op.ndim()) for axis in op.attr("axes") or [0, 2, 3]]
    dtype = op.dtype()
    wide = accumulator(dtype)
    x = _cast(op, op.x(), wide)
    centered = op.emit(R.subtract(x, op.emit(R.mean(x, axes, True))))
    variance = op.emit(R.mean(op.emit(R.multiply(centered, centered)), axes, True))
    deviation = op.emit(R.add(op.emit(R.sqrt(variance)), op.const(1e-9, wide)))
    return _cast(op, R.divide(centered, deviation), dtype)
