"""Batch, layer, group and RMS normalization, and softmax."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


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
) -> tuple[relax.Expr, None, None]:
    """Normalize channels (axis 1) with the running statistics."""
    gamma, beta = _affine(b, weight, bias, [running_mean.shape[0]])
    result = relax.op.nn.batch_norm(
        b.tensor(x),
        gamma,
        beta,
        b.tensor(running_mean),
        b.tensor(running_var),
        axis=1,
        epsilon=eps,
        momentum=momentum,
        training=False,
    )
    return b.emit(relax.TupleGetItem(b.emit(result), 0)), None, None


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
    gamma, beta = _affine(b, weight, bias, normalized_shape)
    axes = list(range(-len(normalized_shape), 0))
    return relax.op.nn.layer_norm(b.tensor(x), gamma, beta, axes=axes, epsilon=eps)


@converter("aten.native_layer_norm.default")
def native_layer_norm(
    b: GraphBuilder, x: Value, normalized_shape: Any, weight: Value, bias: Value, eps: float
) -> tuple[relax.Expr, None, None]:
    """Layer norm; the mean and reciprocal deviation it also returns are for training only."""
    return b.emit(layer_norm(b, x, normalized_shape, weight, bias, eps)), None, None


@converter("aten.native_group_norm.default")
def group_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[relax.Expr, None, None]:
    """Normalize each group of channels over its channels and all spatial axes."""
    gamma, beta = _affine(b, weight, bias, [C])
    data = b.tensor(x)
    result = relax.op.nn.group_norm(
        data,
        gamma,
        beta,
        num_groups=group,
        channel_axis=1,
        axes=list(range(2, data.ty.ndim)),
        epsilon=eps,
    )
    return b.emit(result), None, None


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
    gamma, beta = _affine(b, weight, bias, [b.static(b.shape(data)[1])])
    axes = list(range(2, data.ty.ndim))
    return relax.op.nn.instance_norm(data, gamma, beta, channel_axis=1, axes=axes, epsilon=eps)


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
    return relax.op.nn.rms_norm(b.tensor(x), gamma, axes=axes, epsilon=epsilon)


def _affine(
    b: GraphBuilder, weight: Value, bias: Value, shape: Any
) -> tuple[relax.Expr, relax.Expr]:
    """Return scale and shift, ones and zeros where the module has none."""
    dtype = getattr(torch, b.dtype)
    gamma = torch.ones(list(shape), dtype=dtype) if weight is None else weight
    beta = torch.zeros(list(shape), dtype=dtype) if bias is None else bias
    return b.tensor(gamma), b.tensor(beta)


@converter("aten._softmax.default")
def softmax(b: GraphBuilder, x: Value, dim: int, half_to_float: bool) -> relax.Expr:
    """exp(x - max) / sum along one axis."""
    return relax.op.nn.softmax(b.tensor(x, b.dtype), axis=dim)


@converter("aten._log_softmax.default")
def log_softmax(b: GraphBuilder, x: Value, dim: int, half_to_float: bool) -> relax.Expr:
    """X - max - log(sum(exp(x - max))) along one axis."""
    return relax.op.nn.log_softmax(b.tensor(x, b.dtype), axis=dim)
