"""Random tensors, reproducible: a model gives the same numbers in every run.

ONNX leaves the generator open. Ours is keyed by the attribute `seed`; where that is missing, by the
name of the node's output, so that two nodes differ. The draws do not depend on threads or target.
"""

from __future__ import annotations

import zlib

import numpy as np
import onnx
from tvm import relax

from frontends.computations.random_numbers import bernoulli, multinomial, normal, uniform
from frontends.dims import Dim, is_static
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


def seed_of(op: Op) -> int:
    """Return a 64-bit key."""
    if op.has_attr("seed"):
        return int(np.float32(op.attr("seed")).view(np.uint32))
    return (1 << 32) | zlib.crc32(op.title.encode())


def _dtype(op: Op, default: str) -> str:
    kind = op.attr("dtype")
    return default if kind is None else str(onnx.helper.tensor_dtype_to_np_dtype(kind))


def _emit(op: Op, dims: list[Dim], dtype: str) -> relax.Expr:
    if op.node.op_type.startswith("RandomNormal"):
        first, second = op.attr("mean", 0.0), op.attr("scale", 1.0)
    else:
        first, second = op.attr("low", 0.0), op.attr("high", 1.0)
    draw = normal if op.node.op_type.startswith("RandomNormal") else uniform
    seed = seed_of(op)
    if all(is_static(dim) for dim in dims):
        sizes = [int(dim) for dim in dims]
        return op.te(lambda: draw(sizes, dtype, float(first), float(second), seed))
    return op.te(lambda sizes: draw(sizes, dtype, float(first), float(second), seed), dims=dims)


@converter("RandomNormal", "RandomUniform")
def random_tensor(op: Op) -> relax.Expr:
    """Draw a tensor of the attribute's shape."""
    return _emit(op, list(op.attr("shape")), _dtype(op, "float32"))


@converter("RandomNormalLike", "RandomUniformLike")
def random_like(op: Op) -> relax.Expr:
    """Draw a tensor shaped like the input."""
    return _emit(op, list(op.shape()), _dtype(op, op.dtype()))


@converter("Bernoulli")
def random_bits(op: Op) -> relax.Expr:
    """Draw 1 with the given probabilities, else 0."""
    dtype, seed = _dtype(op, op.dtype()), seed_of(op)
    return op.te(lambda x: bernoulli(x, dtype, seed), op.x())


@converter("Multinomial")
def random_classes(op: Op) -> relax.Expr:
    """Draw classes by their log-probabilities, which need not be normalized."""
    dtype, seed, number = _dtype(op, "int32"), seed_of(op), int(op.attr("sample_size", 1))
    return op.te(lambda x: multinomial(x, number, dtype, seed), op.x())
