"""What a lowering rule is, and how to fall back on TVM's own rule for an operator."""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm
from tvm import relax

# Takes the builder of the new module and the call; returns what computes the same value.
LoweringRule = Callable[[relax.BlockBuilder, tvm.ir.Call], relax.Expr]


def default_lowering(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Lower `call` by the rule TVM registers for its operator, or return it unchanged."""
    rule = call.op.get_attr("FLegalize")
    return call if rule is None else rule(bb, call)


def is_float32(*values: relax.Expr) -> bool:
    """Return whether all values are float32 tensors of known rank."""
    return all(is_tensor_of({"float32"}, v) for v in values)


def is_tensor_of(types: Collection[str], value: relax.Expr) -> bool:
    """Return whether a value is a tensor of known rank whose elements are of one of the types."""
    return (
        isinstance(value.ty, relax.TensorType) and value.ty.ndim >= 0 and dtype_of(value) in types
    )


def dtype_of(value: relax.Expr) -> str:
    """Return the element type of a tensor as a string, "" where it is unknown."""
    dtype = value.ty.dtype
    return "" if dtype is None else str(getattr(dtype, "dtype", dtype))


def static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor as integers, or None where a dimension is symbolic."""
    shape = getattr(value.ty, "shape", None)
    dims = getattr(shape, "values", None)
    if dims is None or not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
        return None
    return tuple(int(d) for d in dims)


def has_no_elements(value: relax.Expr) -> bool:
    """Return whether a dimension of a tensor is known to be 0.

    Such a tensor cannot be viewed in every shape: to `R.reshape` a 0 means the size that was there.
    """
    dims = getattr(getattr(value.ty, "shape", None), "values", None)
    return any(isinstance(d, tvm.tirx.IntImm) and int(d) == 0 for d in dims or ())
