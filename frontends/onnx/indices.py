"""Indices that must lie in an axis: constant ones are checked now, others by a run."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.checked_indices import checked_indices
from frontends.dims import Dim, all_static, dim_name, dtype_of, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op


def indices_within(op: Op, place: int, sizes: Sequence[Dim]) -> relax.Expr:
    """Return input `place`, indices of axes of `sizes`, so that each is in range or the run fails.

    Args:
        op: The node.
        place: An integer input; an index i fits an axis of n elements if -n <= i < n.
        sizes: The axes that the columns of its last axis index, or the one axis of all indices.

    Raises:
        InvalidModel: If a constant index is out of range.
    """
    known = op.constant(place)
    if known is None:
        name = op.value(place).name or f"input {place}"
        return checked(op, op.x(place), sizes, name)
    columns = known.reshape(-1, len(sizes)).T if len(sizes) > 1 else [known]
    for column, size in zip(columns, sizes, strict=True):
        if column.size == 0:
            continue
        low, high = int(column.min()), int(column.max())
        if is_static(size):
            if low < -size or high >= size:
                wrong = low if low < -size else high
                raise InvalidModel(f"index {wrong} is out of range for {size} elements")
        elif low < 0 or high >= 0:  # the axis must reach as far as the indices do
            op.require(prim(size) >= max(high + 1, -low), "has_all_indices")
    return op.x(place)


def checked(
    op: Op, x: relax.Expr, sizes: Sequence[Dim], name: str, *, from_back: bool = True
) -> relax.Expr:
    """Return the indices `x` counted from the front; `name` is what an error calls them.

    With `from_back`, negative ones count from the end of their axis.
    """
    shown = ", ".join(str(dim_name(size)) for size in sizes)
    fault = f"an index is out of range for axes of size {shown}"
    return _checked(op, x, sizes, fault, name, from_back=from_back)


def at_most(op: Op, place: int, most: Dim, what: str) -> relax.Expr:
    """Return input `place`, whose numbers lie between 0 and `most`, or the run fails.

    Args:
        op: The node.
        place: An integer input.
        most: The greatest number allowed.
        what: What one of its numbers is, for the error.

    Raises:
        InvalidModel: If a constant number is out of range.
    """
    known = op.constant(place)
    if known is None:
        message = f"{what} is not between 0 and {dim_name(most)}"
        name = op.value(place).name or f"input {place}"
        size = op.arithmetic.simplify(most + 1)
        return _checked(op, op.x(place), [size], message, name, from_back=False)
    if known.size:
        low, high = int(known.min()), int(known.max())
        if low < 0 or (is_static(most) and high > most):
            raise InvalidModel(f"{what} is {low if low < 0 else high}, not between 0 and {most}")
        if not is_static(most):
            op.require(prim(most) >= high, "has_all_places")
    return op.x(place)


def _checked(
    op: Op,
    x: relax.Expr,
    sizes: Sequence[Dim],
    fault: str,
    name: str,
    *,
    from_back: bool = True,
) -> relax.Expr:
    where = f"node '{op.node.name}', tensor '{name}'" if op.node.name else f"tensor '{name}'"
    message = f"{op.node.op_type}: {fault} ({where})"
    shape = x.ty.shape
    if len(shape) == 0:
        x = op.emit(R.reshape(x, relax.ShapeExpr([1])))
    if dtype_of(x) not in ("int32", "int64"):
        x = op.emit(R.astype(x, "int64"))

    def compute(indices: te.Tensor, dims: Sequence[Dim] = sizes) -> te.Tensor:
        return checked_indices(indices, list(dims), message, from_back=from_back)

    dims = [] if all_static(sizes) else sizes
    found = op.te(compute, x, name="checked_indices", dims=dims)
    return found if len(shape) else op.emit(R.reshape(found, relax.ShapeExpr([])))
