"""Sizes that are computed at run time, and tensors seen as rows along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op as R

from frontends.computations.checked_values import checked_values
from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import Dim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.value import Value


def counted(op: Op, number: relax.Expr) -> Dim:
    """Return the size that an int64 tensor of shape (1,) holds, as a new symbol."""
    return read_sizes(op, number)[0]


def read_sizes(op: Op, numbers: relax.Expr) -> list[Dim]:
    """Return the sizes that an int64 vector holds, as new symbols."""
    return op.builder.read_dims(Value.of_expr("size", numbers), op.title)


def run_time_size(op: Op, place: int) -> Dim:
    """Return the one element of input `place` as a size: known, symbolic, or read at run time."""
    known = op.dims(place)
    array = op.constant(place)
    if array is not None and known is None:  # a float, which OneHot's depth may be
        known = [int(item) for item in array.reshape(-1)]
    if known is not None:
        if len(known) != 1:
            raise InvalidModel(f"input {place} must hold one number, not {len(known)}")
        return known[0]
    number = op.emit(exact_reshape(op.x(place), relax.ShapeExpr([1])))
    if op.dtype(place) != "int64":
        number = op.emit(R.astype(number, "int64"))
    return counted(op, number)


def refusing(op: Op, x: relax.Expr, refused: int, fault: str, most: int = 0) -> relax.Expr:
    """Return a vector; a run ends with the error `fault` if too many elements are `refused`."""
    message = f"{op.node.op_type}: {fault} (tensor '{op.title}')"
    return op.te(lambda v: checked_values(v, refused, message, most=most), x, name="checked_values")


def as_rows(op: Op, x: relax.Expr, dims: Sequence[Dim], axis: int) -> relax.Expr:
    """Return a tensor of shape `dims` as (outer, length of `axis`, inner): a view."""
    product = op.arithmetic.product
    shape = [product(dims[:axis]), dims[axis], product(dims[axis + 1 :])]
    return op.emit(exact_reshape(x, relax.ShapeExpr(shape)))


def parts(op: Op, together: relax.Expr, number: int) -> list[relax.Expr]:
    """Return the first `number` tensors of a kernel with several results."""
    return [op.emit(relax.TupleGetItem(together, place)) for place in range(number)]
