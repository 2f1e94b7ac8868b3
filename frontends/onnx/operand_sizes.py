"""Which symbolic sizes the operands of a Relax operator must share.

Relax takes sizes that it cannot prove unequal as equal; a kernel would then read beyond the smaller
operand. `GraphBuilder.emit` states these pairs, and a run checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax
from tvm.ir import Op

from frontends.dims import Dim, as_dim, is_static

_BROADCASTING = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
        *("maximum", "minimum", "where", "equal", "not_equal", "less", "less_equal", "greater"),
        *("greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and"),
        *("bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    )
)


def shared_sizes(expr: relax.Expr) -> Iterator[tuple[Dim, Dim]]:
    """Yield the pairs of sizes that must be equal for `expr` to read what exists."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, Op):
        return
    name = str(expr.op.name)
    if name == "relax.matmul":
        yield from _product(*(_dims(arg) for arg in expr.args[:2]))
    elif name in _BROADCASTING:
        yield from _broadcast([_dims(arg) for arg in expr.args])
    elif name == "relax.reshape" and isinstance(expr.args[1], relax.ShapeExpr):
        # A reshape only renames the memory: elements left over would be read as if they were there.
        yield _count(_dims(expr.args[0])), _count([as_dim(dim) for dim in expr.args[1].values])
    elif name.startswith("relax.nn.conv") and str(expr.attrs.data_layout).startswith("NC"):
        data, weight = (_dims(arg) for arg in expr.args[:2])
        transposed = name.endswith("_transpose")
        yield data[1], weight[0] if transposed else weight[1] * int(expr.attrs.groups)
    elif name == "relax.nn.batch_norm":
        data = _dims(expr.args[0])
        yield from ((data[int(expr.attrs.axis)], _dims(arg)[0]) for arg in expr.args[1:5])
    elif name == "relax.concat" and isinstance(expr.args[0], relax.Tuple):
        shapes = [_dims(part) for part in expr.args[0].fields]
        axis = int(expr.attrs.axis) % max(len(shapes[0]), 1)
        for shape in shapes[1:]:
            pairs = enumerate(zip(shapes[0], shape, strict=False))
            yield from (pair for place, pair in pairs if place != axis)


def _count(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _product(left: Sequence[Dim], right: Sequence[Dim]) -> Iterator[tuple[Dim, Dim]]:
    if not left or not right:
        return
    yield left[-1], right[-2] if len(right) > 1 else right[0]
    yield from _broadcast([left[:-2], right[:-2]])


def _broadcast(shapes: Sequence[Sequence[Dim]]) -> Iterator[tuple[Dim, Dim]]:
    first: dict[int, Dim] = {}
    for shape in shapes:
        for place, dim in enumerate(reversed(shape)):
            if is_static(dim) and dim == 1:
                continue
            if place in first:
                yield first[place], dim
            else:
                first[place] = dim


def _dims(expr: relax.Expr) -> list[Dim]:
    shape = getattr(getattr(expr, "ty", None), "shape", None)
    return [as_dim(dim) for dim in shape.values] if isinstance(shape, relax.ShapeExpr) else []
