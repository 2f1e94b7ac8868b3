"""How large a tensor is; a symbolic size counts as 1."""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.tirx import IntImm


def static_shape(expr: relax.Expr) -> list[int]:
    """Return the shape of a tensor with 1 for each symbolic size; [] where it is unknown."""
    shape = getattr(expr.ty, "shape", None)
    if shape is None:
        return []
    return [int(dim) if isinstance(dim, IntImm) else 1 for dim in shape]


def points_of(expr: relax.Expr) -> int:
    """Return how many elements a tensor has."""
    return math.prod(static_shape(expr))


def bytes_of(expr: relax.Expr) -> int:
    """Return the bytes of a tensor, 0 for anything else."""
    if not isinstance(expr.ty, relax.TensorType):
        return 0
    return points_of(expr) * tvm.runtime.DataType(str(expr.ty.dtype)).itemsize
