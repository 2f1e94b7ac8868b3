"""Functions that recurse or dangle, and branches that shadow or do not fit."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from tests.fuzz.malformed.case import INT64, Malformed, case, make_node, make_weight, model, value


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    """Return a function that calls others one after the other."""
    nodes = [
        make_node(call, [f"v{i}"], [f"v{i + 1}"], domain="local" if call.startswith("F") else "")
        for i, call in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["v0"], [f"v{len(calls)}"], nodes, opsets)


def _calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    return model([make_node("F0", ["x"], ["y"], domain="local")], functions=functions)


def _branch(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), f"to_{output}", [], [value(output, None)])


def _if(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    node = make_node("If", ["flag"], ["y"], name="choice", then_branch=then, else_branch=other)
    flag = value("flag", [], TensorProto.BOOL)
    return model([make_node("Neg", ["x"], ["a"]), node], inputs=[value("x"), flag])


@case
def function_that_calls_itself() -> Malformed:
    return Malformed(_calling(_function("F0", "Relu", "F0")), "F0 -> F0")


@case
def functions_that_call_each_other() -> Malformed:
    functions = [_function("F0", "F1"), _function("F1", "F2"), _function("F2", "F0")]
    return Malformed(_calling(*functions), "F0 -> F1 -> F2 -> F0")


@case
def functions_that_double_forty_times() -> Malformed:
    functions = [_function(f"F{i}", f"F{i + 1}", f"F{i + 1}") for i in range(40)]
    return Malformed(_calling(*functions, _function("F40", "Relu")), "expand")


@case
def functions_a_thousand_deep() -> Malformed:
    functions = [_function(f"F{i}", f"F{i + 1}") for i in range(1000)]
    return Malformed(_calling(*functions, _function("F1000", "Relu")), "deep")


@case
def function_defined_twice() -> Malformed:
    return Malformed(_calling(_function("F0", "Relu"), _function("F0", "Neg")), "F0")


@case
def function_with_a_dangling_input() -> Malformed:
    function = _function("F0", "Relu")
    function.node[0].input[0] = "ghost"
    return Malformed(_calling(function), "ghost")


@case
def function_with_an_output_from_nowhere() -> Malformed:
    function = _function("F0", "Relu")
    function.output[0] = "ghost"
    return Malformed(_calling(function), "ghost")


@case
def function_with_too_many_inputs_given() -> Malformed:
    made = _calling(_function("F0", "Relu"))
    made.graph.node[0].input.append("x")
    made.graph.node[0].name = "call"
    return Malformed(made, "call")


@case
def subgraph_output_that_shadows() -> Malformed:
    shadow = _branch([make_node("Relu", ["x"], ["a"], name="shadow")], "a")
    return Malformed(_if(shadow, _branch([make_node("Neg", ["x"], ["o"])], "o")), "shadow")


@case
def subgraph_initializer_that_shadows() -> Malformed:
    branch = _branch([make_node("Relu", ["x"], ["t"])], "t")
    branch.initializer.append(make_weight("a", [1.0]))
    return Malformed(_if(branch, _branch([make_node("Neg", ["x"], ["o"])], "o")), "'a'")


@case
def subgraph_with_a_dangling_input() -> Malformed:
    branch = _branch([make_node("Add", ["x", "ghost"], ["t"], name="inside")], "t")
    return Malformed(_if(branch, _branch([make_node("Neg", ["x"], ["o"])], "o")), "inside")


@case
def subgraph_that_reads_a_sibling() -> Malformed:
    then = _branch([make_node("Relu", ["x"], ["t"])], "t")
    return Malformed(_if(then, _branch([make_node("Neg", ["t"], ["o"], name="peek")], "o")), "peek")


@case
def branches_of_different_types() -> Malformed:
    then = _branch([make_node("Relu", ["x"], ["t"])], "t")
    other = _branch([make_node("Cast", ["x"], ["o"], to=INT64)], "o")
    other.output[0].type.tensor_type.elem_type = INT64
    return Malformed(_if(then, other), "choice")


@case
def subgraphs_a_thousand_deep() -> Malformed:
    branch = _branch([make_node("Relu", ["x"], ["t"])], "t")
    made = _if(branch, _branch([make_node("Neg", ["x"], ["o"])], "o"))
    graph = made.graph.node[1].attribute[0].g
    for level in range(1000):  # in place: protobuf copies no more than a hundred levels
        node = graph.node.add(op_type="If", input=["flag"], output=[f"t{level}"])
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
    return Malformed(made, "deep")
