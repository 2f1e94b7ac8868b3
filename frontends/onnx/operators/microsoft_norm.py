"""Normalizations of the com.microsoft domain: with a residual, without a mean, of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.dims import dims_of, dtype_of
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op
from frontends.onnx.operators.microsoft import MICROSOFT, biased
from frontends.onnx.operators.norm import inverse_root_mean_square, statistics
from frontends.onnx.registry import converter


@converter("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(op: Op) -> Any:
    """Normalize input + skip + bias over the last axis.

    Mean, 1 / deviation and the sum are the other outputs.
    """
    total, epsilon = _skip_sum(op, 4), float(op.attr("epsilon", 1e-12))
    beta = op.x(3) if op.has(3) else op.emit(R.zeros_like(op.x(2)))
    result = R.nn.layer_norm(total, op.x(2), beta, [-1], epsilon)
    if not any(op.node.output[1:3]):
        return _named(op, result, None, None, total)
    return _named(op, result, *statistics(op, _wide(op, total), [op.ndim() - 1], epsilon), total)


@converter("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(op: Op) -> Any:
    """Apply RMS normalization to input + skip + bias.

    The other outputs are zeros for the mean, which this norm does not take off, 1 / the root of the
    mean square, and the sum.
    """
    total, epsilon = _skip_sum(op, 3), float(op.attr("epsilon", 1e-12))
    result = R.nn.rms_norm(total, op.x(2), [-1], epsilon)
    if not any(op.node.output[1:3]):
        return _named(op, result, None, None, total)
    inverse = inverse_root_mean_square(op, _wide(op, total), [op.ndim() - 1], epsilon)
    return _named(op, result, op.emit(R.zeros_like(inverse)), inverse, total)


@converter("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_norm(op: Op) -> Any:
    """Apply RMS normalization over the last axis; the second output is the factor."""
    epsilon = float(op.attr("epsilon", 1e-5))
    result = R.nn.rms_norm(op.x(0), op.x(1), [-1], epsilon)
    if not any(op.node.output[1:]):
        return result
    wide = _wide(op, op.x(0))
    return result, inverse_root_mean_square(op, wide, [op.ndim() - 1], epsilon)


def _skip_sum(op: Op, bias: int) -> relax.Expr:
    total = biased(op)
    if not op.has(bias):
        return total
    return op.emit(R.add(total, op.fitted(op.x(bias), op.shape())))


def _named(op: Op, *results: relax.Expr | None) -> Any:
    """Return as many results as the node names."""
    return results[: len(op.node.output)]


def _wide(op: Op, x: relax.Expr) -> relax.Expr:
    """Return a tensor in float32, the type of the statistics."""
    return x if dtype_of(x) == "float32" else op.emit(R.astype(x, "float32"))


@converter("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(op: Op) -> Any:
    """Normalize the sum of word, position and segment embeddings.

    The second output counts the ones of the mask in each row: the end of the valid tokens.
    """
    batch, length = op.shape()
    words = op.emit(R.take(op.x(2), indices_within(op, 0, [op.shape(2)[0]]), 0, "clip"))
    if op.has(8):
        places = indices_within(op, 8, [op.shape(3)[0]])
        positions = op.emit(R.take(op.x(3), places, 0, "clip"))
    else:
        positions = op.emit(R.strided_slice(op.x(3), [0], [0], [length], assume_inbound=False))
    total = op.emit(R.add(words, op.fitted(positions, dims_of(words))))
    if op.has(4):
        given = indices_within(op, 1, [op.shape(4)[0]]) if op.has(1) else None
        segments = op.const(np.zeros((1, 1)), op.dtype(0)) if given is None else given
        kinds = op.emit(R.take(op.x(4), segments, 0, "clip"))
        total = op.emit(R.add(total, op.fitted(kinds, dims_of(words))))
    normal = R.nn.layer_norm(total, op.x(5), op.x(6), [-1], float(op.attr("epsilon", 1e-12)))
    outputs: list[Any] = [normal]
    if len(op.node.output) > 1:
        if op.has(7):
            outputs.append(R.astype(op.emit(R.sum(op.x(7), [1])), "int32"))
        else:
            outputs.append(R.zeros(relax.ShapeExpr([batch]), "int32"))
    if len(op.node.output) > 2:
        outputs.append(total)
    return tuple(outputs)


@converter("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(op: Op) -> Any:
    """Normalize groups of channels, then x * sigmoid(x) where asked; channels are last by default.

    SkipGroupNorm normalizes x + skip + bias and returns that sum as second output.
    """
    x = op.x(0)
    skips = op.node.op_type == "SkipGroupNorm"
    channels_last = bool(op.attr("channels_last", 1))
    if skips:
        if not channels_last:
            raise op.unsupported("channels first")
        skip = op.x(3)
        if op.ndim(3) == 2:
            skip = op.emit(R.expand_dims(skip, [1, 2]))
        x = op.emit(R.add(x, op.fitted(skip, op.shape())))
        if op.has(4):
            x = op.emit(R.add(x, op.fitted(op.x(4), op.shape())))
    axis = op.ndim() - 1 if channels_last else 1
    axes = [place for place in range(1, op.ndim()) if place != axis]
    dtype = dtype_of(x)
    gamma, beta = (op.emit(R.astype(op.x(place), dtype)) if op.dtype(place) != dtype
                   else op.x(place) for place in (1, 2))  # fmt: skip
    result = R.nn.group_norm(
        x, gamma, beta, op.count("groups"), axis, axes, float(op.attr("epsilon", 1e-5))
    )
    if op.attr("activation", 0):
        result = R.nn.silu(op.emit(result))
    return (result, x) if skips and len(op.node.output) > 1 else result
