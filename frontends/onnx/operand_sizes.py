"""Which sizes the operands of a Relax operator must share.

Relax takes sizes that it cannot prove unequal as equal, or gives no shape to the result; a kernel
would read beyond the smaller operand, or there would be none. `GraphBuilder.emit` gives operands
sizes that agree, and states what is left; a run checks both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax
from tvm.ir import Op

from frontends.dims import Dim, as_dim
from frontends.onnx.broadcasting import Broadcasting, known_one

_BROADCASTING = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
        *("maximum", "minimum", "where", "equal", "not_equal", "less", "less_equal", "greater"),
        *("greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and"),
        *("bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
    )
)


# A parameter has an element for each place on these axes of the data, by the attribute's name.
_NORMALIZED = {
    "relax.nn.batch_norm": "axis",
    "relax.nn.layer_norm": "axes",
    "relax.nn.rms_norm": "axes",
    "relax.nn.group_norm": "channel_axis",
}


def agreeing(expr: relax.Expr, sizes: Broadcasting, title: str) -> relax.Expr:
    """Return a call of an operator with operands whose sizes agree; `title` names them."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, Op):
        return expr
    name, given = str(expr.op.name), list(expr.args)
    if name == "relax.concat" and isinstance(given[0], relax.Tuple):
        parts = list(given[0].fields)
        if not all(_has_shape(part) for part in parts):
            return expr
        axis = int(expr.attrs.axis) % max(len(_dims(parts[0])), 1)
        joined = sizes.joined(parts, axis, title)
        return expr if _same(joined, parts) else _call(expr, [relax.Tuple(joined)])
    if not all(_has_shape(x) for x in given):
        return expr
    if name in _BROADCASTING:
        operands = sizes.aligned(given, title)
    elif name == "relax.matmul" and all(_dims(x) for x in given):
        operands = sizes.multiplied(given[0], given[1], title)
    elif name in _NORMALIZED:
        operands = _with_parameters(expr, sizes, title)
    else:
        return expr
    return expr if _same(operands, given) else _call(expr, operands)


def _with_parameters(call: relax.Call, sizes: Broadcasting, title: str) -> list[relax.Expr]:
    """Return data and parameters of a normalization with the same sizes on the data's axes."""
    data, *parameters = call.args
    named = getattr(call.attrs, _NORMALIZED[str(call.op.name)])
    dims = _dims(data)
    axes = [int(axis) % len(dims) for axis in ([named] if isinstance(named, int) else named)]
    for place, axis in enumerate(axes):
        dims[axis] = known_one([dims[axis], *(_dims(x)[place] for x in parameters)])
    wanted = [dims[axis] for axis in axes]
    return [sizes.stated(data, dims, title), *(sizes.stated(x, wanted, title) for x in parameters)]


def _call(call: relax.Call, operands: Sequence[relax.Expr]) -> relax.Call:
    return relax.Call(call.op, operands, call.attrs, call.ty_args)


def _same(left: Sequence[relax.Expr], right: Sequence[relax.Expr]) -> bool:
    return all(a.same_as(b) for a, b in zip(left, right, strict=True))


def shared_sizes(expr: relax.Expr) -> Iterator[tuple[Dim, Dim]]:
    """Yield the pairs of sizes that must be equal besides for `expr` to read what exists."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, Op):
        return
    name = str(expr.op.name)
    if name == "relax.reshape" and isinstance(expr.args[1], relax.ShapeExpr):
        # A reshape only renames the memory: elements left over would be read as if they were there.
        yield _count(_dims(expr.args[0])), _count([as_dim(dim) for dim in expr.args[1].values])
    elif name.startswith("relax.nn.conv") and str(expr.attrs.data_layout).startswith("NC"):
        data, weight = (_dims(arg) for arg in expr.args[:2])
        transposed = name.endswith("_transpose")
        yield data[1], weight[0] if transposed else weight[1] * int(expr.attrs.groups)


def _count(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _has_shape(expr: relax.Expr) -> bool:
    return isinstance(getattr(getattr(expr, "ty", None), "shape", None), relax.ShapeExpr)


def _dims(expr: relax.Expr) -> list[Dim]:
    return [as_dim(dim) for dim in expr.ty.shape.values] if _has_shape(expr) else []
