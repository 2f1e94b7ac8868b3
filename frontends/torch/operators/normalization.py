"""Batch, layer, group and RMS normalization, and softmax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from frontends.torch.dtypes import dtype_name
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Normalize channels (axis 1) with the running statistics; two empty tensors stand for new."""
    gamma, beta = _affine(b, weight, bias, b.shape(b.tensor(running_mean)))
    result = relax.op.nn.batch_norm(
        *_alike(b, x, gamma, beta, running_mean, running_var),
        axis=1,
        epsilon=eps,
        momentum=momentum,
        training=False,
    )
    empty = b.emit(relax.op.zeros(relax.ShapeExpr([0]), b.dtype))
    normalized = b.emit(relax.TupleGetItem(b.emit(result), 0))
    return b.tensor(normalized, b.dtype), empty, empty


@converter("aten.layer_norm.default")
def layer_norm(
    b: GraphBuilder,
    x: Value,
    normalized_shape: Any,
    weight: Value = None,
    bias: Value = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> relax.Expr:
    """Normalize over the trailing axes `normalized_shape` and scale by weight and bias."""
    operands = _alike(b, x, *_affine(b, weight, bias, normalized_shape))
    axes = list(range(-len(normalized_shape), 0))
    result = b.emit(relax.op.nn.layer_norm(*operands, axes=axes, epsilon=eps))
    return b.tensor(result, b.dtype)


@converter("aten.native_layer_norm.default")
def native_layer_norm(
    b: GraphBuilder, x: Value, normalized_shape: Any, weight: Value, bias: Value, eps: float
) -> tuple[relax.Expr, relax.Expr | None, relax.Expr | None]:
    """Layer norm, the mean and the reciprocal deviation of each row."""
    data = b.tensor(x)
    axes = list(range(data.ty.ndim - len(normalized_shape), data.ty.ndim))
    result = b.emit(layer_norm(b, x, normalized_shape, weight, bias, eps))
    return result, *_statistics(b, data, axes, eps, keepdims=True)


@converter("aten.native_group_norm.default")
def group_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    N: Any,
    C: int,
    HxW: Any,
    group: int,
    eps: float,
) -> tuple[relax.Expr, relax.Expr | None, relax.Expr | None]:
    """Normalize each group of channels over its channels and all spatial axes."""
    gamma, beta = _affine(b, weight, bias, [C])
    data = b.tensor(x)
    result = _group_norm(b, data, gamma, beta, group, eps)
    grouped = [b.size(N), group, product([C // group, b.size(HxW)])]
    statistics = _statistics(b, data, [2], eps, keepdims=False, shape=grouped)
    return result, *statistics


def _group_norm(
    b: GraphBuilder, data: relax.Expr, gamma: relax.Expr, beta: relax.Expr, groups: int, eps: float
) -> relax.Expr:
    """Normalize groups of channels; Relax takes no bfloat16 here."""
    operands = _alike(b, data, gamma, beta)
    wide = "float32" if str(operands[0].ty.dtype) == "bfloat16" else None
    result = relax.op.nn.group_norm(
        *(b.tensor(operand, wide) for operand in operands),
        num_groups=groups,
        channel_axis=1,
        axes=list(range(2, data.ty.ndim)),
        epsilon=eps,
    )
    return b.tensor(b.emit(result), b.dtype)


def _statistics(
    b: GraphBuilder,
    data: relax.Expr,
    axes: list[int],
    eps: float,
    *,
    keepdims: bool,
    shape: list[Size] | None = None,
) -> tuple[relax.Expr | None, relax.Expr | None]:
    """Return the mean and 1 / sqrt(variance + eps) over axes, where the node's results are read."""
    if not (b.is_read(1) or b.is_read(2)):
        return None, None
    rows = data if shape is None else b.reshape(data, shape)
    mean = b.emit(relax.op.mean(rows, axes, keepdims))
    variance = b.emit(relax.op.variance(rows, axes, keepdims))
    return mean, _reciprocal_deviation(b, variance, eps)


@converter(
    "aten._native_batch_norm_legit.default", "aten._native_batch_norm_legit_functional.default"
)
def batch_norm_training(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Normalize channels with the batch's own statistics, and move the running ones towards them.

    The running variance is the unbiased one. Without `training` this is `batch_norm`.
    """
    old = [b.tensor(part) for part in (running_mean, running_var)]
    if not training:
        return *batch_norm(b, x, weight, bias, running_mean, running_var, momentum, eps), *old
    result, mean, variance = _batch_statistics(b, x, weight, bias, eps)
    data = b.tensor(x)
    count = product([n for axis, n in enumerate(b.shape(data)) if axis != 1])
    size = b.cast(b.size_tensor(count), b.dtype)
    less = b.emit(relax.op.subtract(size, relax.const(1, b.dtype)))
    unbiased = b.emit(relax.op.multiply(variance, b.emit(relax.op.divide(size, less))))
    moved = [
        b.emit(
            relax.op.add(
                b.emit(relax.op.multiply(before, relax.const(1 - momentum, b.dtype))),
                b.emit(relax.op.multiply(now, relax.const(momentum, b.dtype))),
            )
        )
        for before, now in zip(old, (mean, unbiased), strict=True)
    ]
    return result, mean, _reciprocal_deviation(b, variance, eps), *moved


@converter("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_running_statistics(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Normalize channels with the batch's own statistics."""
    result, mean, variance = _batch_statistics(b, x, weight, bias, eps)
    return result, mean, _reciprocal_deviation(b, variance, eps)


def _batch_statistics(
    b: GraphBuilder, x: Value, weight: Value, bias: Value, eps: float
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return the normalized tensor, and the mean and biased variance of each channel."""
    data = b.tensor(x)
    axes = [axis for axis in range(data.ty.ndim) if axis != 1]
    columns = [1, b.shape(data)[1], *[1] * (data.ty.ndim - 2)]
    mean = b.emit(relax.op.mean(data, axes))
    variance = b.emit(relax.op.variance(data, axes))
    centred = b.emit(relax.op.subtract(data, b.reshape(mean, columns)))
    scale = b.reshape(_reciprocal_deviation(b, variance, eps), columns)
    result = b.emit(relax.op.multiply(centred, scale))
    if weight is not None:
        result = b.emit(relax.op.multiply(result, b.reshape(b.tensor(weight), columns)))
    if bias is not None:
        result = b.emit(relax.op.add(result, b.reshape(b.tensor(bias), columns)))
    return result, mean, variance


def _reciprocal_deviation(b: GraphBuilder, variance: relax.Expr, eps: float) -> relax.Expr:
    return b.emit(relax.op.rsqrt(b.emit(relax.op.add(variance, relax.const(eps, b.dtype)))))


@converter("aten.instance_norm.default")
def instance_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> relax.Expr:
    """Normalize each channel of each sample over its spatial axes."""
    if not use_input_stats:
        return batch_norm(b, x, weight, bias, running_mean, running_var, momentum, eps)[0]
    data = b.tensor(x)
    channels = b.static(b.shape(data)[1])
    gamma, beta = _affine(b, weight, bias, [channels])
    if b.dtype == "float64":  # TVM's instance norm is for float32
        return _group_norm(b, data, gamma, beta, channels, eps)
    axes = list(range(2, data.ty.ndim))
    operands = _alike(b, data, gamma, beta)
    result = relax.op.nn.instance_norm(*operands, channel_axis=1, axes=axes, epsilon=eps)
    return b.tensor(b.emit(result), b.dtype)


@converter("aten.rms_norm.default")
def rms_norm(
    b: GraphBuilder,
    x: Value,
    normalized_shape: Any,
    weight: Value = None,
    eps: float | None = None,
) -> relax.Expr:
    """X / sqrt(mean(x^2) + eps) * weight over the trailing axes."""
    gamma, _ = _affine(b, weight, None, normalized_shape)
    epsilon = torch.finfo(getattr(torch, b.dtype)).eps if eps is None else eps
    axes = list(range(-len(normalized_shape), 0))
    result = relax.op.nn.rms_norm(*_alike(b, x, gamma), axes=axes, epsilon=epsilon)
    return b.tensor(b.emit(result), b.dtype)


def _affine(
    b: GraphBuilder, weight: Value, bias: Value, shape: Any
) -> tuple[relax.Expr, relax.Expr]:
    """Return scale and shift, ones and zeros where the module has none."""
    dtype = getattr(torch, b.dtype)
    gamma = torch.ones(list(shape), dtype=dtype) if weight is None else weight
    beta = torch.zeros(list(shape), dtype=dtype) if bias is None else bias
    return b.tensor(gamma), b.tensor(beta)


def _alike(b: GraphBuilder, *operands: Value) -> list[relax.Expr]:
    """Return operands in the widest of their dtypes: x may be bfloat16, parameters float32."""
    tensors = [b.tensor(operand) for operand in operands]
    dtypes = [getattr(torch, str(tensor.ty.dtype)) for tensor in tensors]
    widest = dtype_name(functools.reduce(torch.promote_types, dtypes))
    return [b.tensor(tensor, widest) for tensor in tensors]


@converter("aten._softmax.default")
def softmax(b: GraphBuilder, x: Value, dim: int, half_to_float: bool) -> relax.Expr:
    """exp(x - max) / sum along one axis."""
    return _of_rows(b, x, lambda rows: relax.op.nn.softmax(rows, axis=dim))


@converter("aten._log_softmax.default")
def log_softmax(b: GraphBuilder, x: Value, dim: int, half_to_float: bool) -> relax.Expr:
    """X - max - log(sum(exp(x - max))) along one axis."""
    return _of_rows(b, x, lambda rows: relax.op.nn.log_softmax(rows, axis=dim))


def _of_rows(b: GraphBuilder, x: Value, function: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Apply a function along an axis; a single number is a row of one."""
    data = b.tensor(x, b.dtype)
    if data.ty.ndim:
        return function(data)
    return b.reshape(b.emit(function(b.reshape(data, [1]))), [])
