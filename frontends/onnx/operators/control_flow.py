"""If: a known condition selects a branch while importing, another one calls it at run time."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax import op as R

from frontends.control_flow.private_function import PrivateFunction
from frontends.dims import Dim, DimArithmetic, depends_only_on
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter
from frontends.onnx.symbols import sanitize
from frontends.onnx.value import Value, structure_of, tensors_of, with_tensors
from frontends.storage_types import container


@converter("If")
def conditional(op: Op) -> list[Value]:
    """Import the branch that a known condition selects in place, or call one of two functions."""
    condition = op.constant(0)
    if condition is not None:
        branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        return op.run_subgraph(op.attr(branch))
    builder = op.builder
    branches = op.attr("then_branch"), op.attr("else_branch")
    if op.value(0).depends_on_sizes_only and _is_squeeze(*branches):
        return _take_squeeze(op)
    functions = builder.functions
    visible = functions.known_symbols()

    def define(branch: str) -> PrivateFunction:
        graph = op.attr(branch)
        return builder.define_function(f"{op.title}_{branch}", lambda: op.run_subgraph(graph))

    then, other = define("then_branch"), define("else_branch")
    if [structure_of(v) for v in then.results] != [structure_of(v) for v in other.results]:
        raise op.unsupported(
            "branches that return sequences of different lengths, or an optional with and without "
            "an element: a compiled model has one number of outputs"
        )
    left, right = tensors_of(then.results), tensors_of(other.results)
    types = []
    for one, two in zip(left, right, strict=True):
        if one.dtype != two.dtype:
            raise InvalidModel(f"one branch returns {one.dtype}, the other {two.dtype}")
        if one.ndim != two.ndim:
            raise op.unsupported(
                f"branches that return tensors of different ranks ({one.ndim} and {two.ndim})"
            )
        dims = common_dims(one.shape, two.shape, visible, op.arithmetic)
        types.append((container(one.dtype), dims))
    scalar = op.emit(R.reshape(op.x(0), relax.ShapeExpr([])))
    chosen = functions.branch(scalar, functions.call(then), functions.call(other))
    items = functions.emit_tuple(chosen, sanitize(op.title), types)
    tensors = [
        one if _same_known(one, two) else Value("", one.dtype, expr=item)
        for one, two, item in zip(left, right, items, strict=True)
    ]
    return with_tensors(then.results, iter(tensors))


def _is_squeeze(then: onnx.GraphProto, other: onnx.GraphProto) -> bool:
    """Tell whether an If is how PyTorch exports `squeeze(axis)`: Squeeze, or else Identity.

    PyTorch leaves an axis of another size in place, so the rank of the result depends on a size.
    What reads the result is nearly always made for one rank, the one without the axis.
    """
    steps = [[node for node in graph.node if node.op_type != "Constant"] for graph in (then, other)]
    if [[node.op_type for node in nodes] for nodes in steps] != [["Squeeze"], ["Identity"]]:
        return False
    (squeeze,), (identity,) = steps
    results = [list(graph.output) for graph in (then, other)]
    return (
        squeeze.input[0] == identity.input[0]
        and [output.name for output in results[0]] == list(squeeze.output)
        and [output.name for output in results[1]] == list(identity.output)
    )


def _take_squeeze(op: Op) -> list[Value]:
    """Import the branch that squeezes; a run in which the condition does not hold stops."""
    branch, title = op.attr("then_branch"), "takes_the_branch_with_squeeze"
    op.builder.notes.append(
        (op.title, "its rank depends on a size: only the branch with Squeeze is compiled")
    )
    (squeeze,) = (node for node in branch.node if node.op_type == "Squeeze")
    data = op.builder.lookup(squeeze.input[0])
    for axis in _squeezed_axes(op, branch, squeeze):
        # Stated before anything that follows from it, so that an error says what is the matter.
        op.require_equal(data.shape[normalize_axis(axis, data.ndim)], 1, title)
    holds = op.emit(R.astype(R.reshape(op.x(0), relax.ShapeExpr([1])), "int64"))
    (chosen,) = op.builder.read_dims(Value.of_expr("condition", holds), op.title)
    op.require(chosen == 1, title)
    return op.run_subgraph(branch)


def _squeezed_axes(op: Op, branch: onnx.GraphProto, squeeze: onnx.NodeProto) -> list[int]:
    """Return the axes that a Squeeze names by an attribute or a constant, else none."""
    given = {item.name: onnx.helper.get_attribute_value(item) for item in squeeze.attribute}
    if len(squeeze.input) < 2 or not squeeze.input[1]:
        return list(given.get("axes", []))
    name = squeeze.input[1]
    tensors = {tensor.name: tensor for tensor in branch.initializer}
    for node in branch.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    if name in tensors:
        return [int(axis) for axis in numpy_helper.to_array(tensors[name]).reshape(-1)]
    inside = any(name in node.output for node in branch.node)
    array = None if inside else op.builder.lookup(name).array
    return [] if array is None else [int(axis) for axis in array.reshape(-1)]


def common_dims(
    one: tuple[Dim, ...],
    two: tuple[Dim, ...],
    visible: frozenset[tirx.Var],
    arithmetic: DimArithmetic,
) -> list[Dim | None]:
    """Return the sizes that two shapes of one rank have in common; None where they may differ.

    A size that depends on a symbol which is not `visible` is unknown outside the function that
    defines the symbol.
    """
    return [
        a if depends_only_on(a, visible) and arithmetic.equal(a, b) else None
        for a, b in zip(one, two, strict=True)
    ]


def _same_known(one: Value, two: Value) -> bool:
    """Tell whether two branches return the same constant."""
    if one.array is None or two.array is None:
        return False
    return one.dtype == two.dtype and np.array_equal(one.array, two.array)
