"""A corpus of malformed models: each is wrong in one way, and says what the error must name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
_node = helper.make_node


class Malformed(NamedTuple):
    """One model, and what its error must contain."""

    model: onnx.ModelProto
    text: str


_CASES: dict[str, Callable[[], Malformed]] = {}


def corpus() -> Iterator[tuple[str, Callable[[], Malformed]]]:
    """Yield name and maker of every case."""
    yield from _CASES.items()


def _case(make: Callable[[], Malformed]) -> Callable[[], Malformed]:
    _CASES[make.__name__] = make
    return make


def value(name: str, shape: Sequence[int | str] | None = (2, 3), kind: int = FLOAT):
    """Return a typed name."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto] = (_node("Relu", ["x"], ["y"]),),
    weights: Sequence[onnx.TensorProto] = (),
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    output: str = "y",
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a model with input x of [2, 3]."""
    graph = helper.make_graph(
        list(nodes), "g", list(inputs or [value("x")]), [value(output, None)], list(weights)
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def _weight(name: str, array: object, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    """Return a function that calls others one after the other."""
    nodes = [
        _node(call, [f"v{i}"], [f"v{i + 1}"], domain="local" if call.startswith("F") else "")
        for i, call in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["v0"], [f"v{len(calls)}"], nodes, opsets)


def _calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    return model([_node("F0", ["x"], ["y"], domain="local")], functions=functions)


def _branch(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), f"to_{output}", [], [value(output, None)])


def _if(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    node = _node("If", ["flag"], ["y"], name="choice", then_branch=then, else_branch=other)
    flag = value("flag", [], TensorProto.BOOL)
    return model([_node("Neg", ["x"], ["a"]), node], inputs=[value("x"), flag])


# Names and order -------------------------------------------------------------------------------


@_case
def dangling_input() -> Malformed:
    return Malformed(model([_node("Add", ["x", "ghost"], ["y"], name="adder")]), "ghost")


@_case
def cycle() -> Malformed:
    nodes = [_node("Add", ["x", "y"], ["a"], name="first"), _node("Relu", ["a"], ["y"])]
    return Malformed(model(nodes), "first")


@_case
def node_that_reads_itself() -> Malformed:
    return Malformed(model([_node("Add", ["x", "y"], ["y"], name="self")]), "self")


@_case
def tensor_produced_twice() -> Malformed:
    nodes = [_node("Relu", ["x"], ["y"]), _node("Neg", ["x"], ["y"], name="again")]
    return Malformed(model(nodes), "again")


@_case
def output_named_like_an_input() -> Malformed:
    return Malformed(model([_node("Relu", ["x"], ["x"])], output="x"), "'x'")


@_case
def output_named_like_an_initializer() -> Malformed:
    return Malformed(model([_node("Relu", ["x"], ["w"])], [_weight("w", [1])], output="w"), "'w'")


@_case
def two_initializers_of_one_name() -> Malformed:
    nodes = [_node("Add", ["x", "w"], ["y"])]
    return Malformed(model(nodes, [_weight("w", [1]), _weight("w", [2])]), "'w'")


@_case
def two_inputs_of_one_name() -> Malformed:
    return Malformed(model(inputs=[value("x"), value("x")]), "'x'")


@_case
def input_without_a_name() -> Malformed:
    return Malformed(model(inputs=[value("x"), value("")]), "no name")


@_case
def graph_output_that_does_not_exist() -> Malformed:
    return Malformed(model(output="nothing"), "nothing")


@_case
def no_outputs() -> Malformed:
    made = model()
    del made.graph.output[:]
    return Malformed(made, "no outputs")


@_case
def empty_graph() -> Malformed:
    made = model()
    made.graph.Clear()
    return Malformed(made, "no outputs")


@_case
def no_graph() -> Malformed:
    made = model()
    made.ClearField("graph")
    return Malformed(made, "no graph")


@_case
def name_that_is_not_utf8() -> Malformed:
    data = model([_node("Relu", ["x"], ["hidden"]), _node("Neg", ["hidden"], ["y"])])
    broken = data.SerializeToString().replace(b"hidden", b"hid\xff\xfen")
    return Malformed(onnx.ModelProto.FromString(broken), "UTF-8")


@_case
def graph_name_that_is_not_utf8() -> Malformed:
    made = model()
    made.graph.name = "nameless"
    broken = made.SerializeToString().replace(b"nameless", b"nam\xff\xfeess")
    return Malformed(onnx.ModelProto.FromString(broken), "UTF-8")


@_case
def attribute_text_that_is_not_utf8() -> Malformed:
    node = _node("Pad", ["x", "p"], ["y"], name="frame", mode="reflect")
    node.attribute[0].s = b"ref\xff\xfe"
    return Malformed(model([node], [_weight("p", [0, 1, 0, 1], "int64")]), "frame")


# Versions --------------------------------------------------------------------------------------


@_case
def no_opset() -> Malformed:
    made = model()
    del made.opset_import[:]
    return Malformed(made, "opset")


@_case
def opset_of_another_domain_only() -> Malformed:
    made = model()
    del made.opset_import[0]
    return Malformed(made, "opset")


@_case
def two_opsets_of_one_domain() -> Malformed:
    made = model()
    made.opset_import.append(helper.make_opsetid("ai.onnx", 9))
    return Malformed(made, "ai.onnx")


@_case
def opset_zero() -> Malformed:
    return Malformed(model(opset=0), "opset 0")


@_case
def unknown_ir_version() -> Malformed:
    made = model()
    made.ir_version = 9999
    return Malformed(made, "9999")


@_case
def domain_without_opset() -> Malformed:
    return Malformed(model([_node("Odd", ["x"], ["y"], domain="mars")]), "mars")


# Nodes -----------------------------------------------------------------------------------------


@_case
def too_few_inputs() -> Malformed:
    return Malformed(model([_node("MatMul", ["x"], ["y"], name="product")]), "product")


@_case
def too_many_inputs() -> Malformed:
    return Malformed(model([_node("Relu", ["x", "x", "x"], ["y"], name="clamp")]), "clamp")


@_case
def too_many_outputs() -> Malformed:
    return Malformed(model([_node("Relu", ["x"], ["y", "z"], name="clamp")]), "clamp")


@_case
def unknown_attribute() -> Malformed:
    return Malformed(model([_node("Relu", ["x"], ["y"], bogus=1)]), "bogus")


@_case
def attribute_of_a_wrong_type() -> Malformed:
    return Malformed(model([_node("Softmax", ["x"], ["y"], axis=1.5)]), "axis")


@_case
def attribute_given_twice() -> Malformed:
    node = _node("Softmax", ["x"], ["y"], axis=1, name="twin")
    node.attribute.append(helper.make_attribute("axis", 0))
    return Malformed(model([node]), "twin")


@_case
def attribute_missing() -> Malformed:
    return Malformed(model([_node("Concat", ["x", "x"], ["y"])]), "axis")


@_case
def attribute_reference_outside_of_a_function() -> Malformed:
    node = _node("LeakyRelu", ["x"], ["y"], name="leak", alpha=0.5)
    node.attribute[0].ref_attr_name = "slope"
    return Malformed(model([node]), "leak")


@_case
def axis_out_of_range() -> Malformed:
    return Malformed(model([_node("Softmax", ["x"], ["y"], axis=7, name="soft")]), "soft")


@_case
def permutation_that_is_none() -> Malformed:
    return Malformed(model([_node("Transpose", ["x"], ["y"], perm=[0, 0], name="turn")]), "turn")


@_case
def shapes_that_do_not_fit() -> Malformed:
    node = _node("MatMul", ["x", "w"], ["y"], name="product")
    return Malformed(model([node], [_weight("w", np.ones((4, 5)))]), "product")


@_case
def types_that_do_not_fit() -> Malformed:
    node = _node("Add", ["x", "w"], ["y"], name="sum")
    return Malformed(model([node], [_weight("w", [1, 2, 3], "int64")]), "sum")


@_case
def reshape_to_a_negative_size() -> Malformed:
    node = _node("Reshape", ["x", "to"], ["y"], name="form")
    return Malformed(model([node], [_weight("to", [-6, -1], "int64")]), "form")


@_case
def output_type_that_is_not_computed() -> Malformed:
    made = model([_node("Cast", ["x"], ["y"], to=INT64)])
    return Malformed(made, "'y'" if made.graph.output[0].name == "y" else "")


# Tensors ---------------------------------------------------------------------------------------


@_case
def initializer_with_a_negative_dimension() -> Malformed:
    weight = _weight("w", [1.0])
    weight.dims[0] = -1
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@_case
def initializer_that_claims_a_terabyte() -> Malformed:
    weight = _weight("w", [1.0])
    weight.dims[0] = 10**12
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@_case
def initializer_whose_size_overflows() -> Malformed:
    weight = _weight("w", [1.0])
    weight.dims.extend([2**62, 2**62])
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@_case
def initializer_with_too_little_typed_data() -> Malformed:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2, 3], float_data=[1, 2])
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@_case
def initializer_with_too_much_raw_data() -> Malformed:
    weight = _weight("w", [1.0, 2.0])
    weight.dims[0] = 1
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@_case
def initializer_of_an_unknown_type() -> Malformed:
    weight = _weight("w", [1.0])
    weight.data_type = 99
    return Malformed(model([_node("Add", ["x", "w"], ["y"])], [weight]), "99")


@_case
def constant_node_that_claims_a_terabyte() -> Malformed:
    tensor = _weight("inner", [1.0])
    tensor.dims[0] = 10**12
    nodes = [_node("Constant", [], ["w"], value=tensor), _node("Add", ["x", "w"], ["y"])]
    return Malformed(model(nodes), "'inner'")


@_case
def input_with_a_negative_dimension() -> Malformed:
    return Malformed(model(inputs=[value("x", [2, -3])]), "'x'")


@_case
def input_whose_size_overflows() -> Malformed:
    return Malformed(model(inputs=[value("x", [2**62, 2**62])]), "'x'")


@_case
def input_of_an_unknown_type() -> Malformed:
    return Malformed(model(inputs=[value("x", [2], 99)]), "99")


@_case
def output_of_an_unknown_type() -> Malformed:
    made = model()
    made.graph.output[0].type.tensor_type.elem_type = 99
    return Malformed(made, "99")


@_case
def input_without_a_type() -> Malformed:
    return Malformed(model(inputs=[onnx.ValueInfoProto(name="x")]), "x")


@_case
def sparse_initializer_with_an_index_out_of_range() -> Malformed:
    return _sparse([1, 99], [4])


@_case
def sparse_initializer_with_a_negative_index() -> Malformed:
    return _sparse([1, -1], [4])


@_case
def sparse_initializer_with_too_few_indices() -> Malformed:
    return _sparse([1], [4])


@_case
def sparse_initializer_with_a_negative_dimension() -> Malformed:
    return _sparse([1, 2], [-4])


def _sparse(indices: list[int], dims: list[int]) -> Malformed:
    made = model([_node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.append(
        onnx.SparseTensorProto(
            values=_weight("w", [1.0, 2.0]), indices=_weight("", indices, "int64"), dims=dims
        )
    )
    return Malformed(made, "'w'")


# Functions and subgraphs -----------------------------------------------------------------------


@_case
def function_that_calls_itself() -> Malformed:
    return Malformed(_calling(_function("F0", "Relu", "F0")), "F0 -> F0")


@_case
def functions_that_call_each_other() -> Malformed:
    functions = [_function("F0", "F1"), _function("F1", "F2"), _function("F2", "F0")]
    return Malformed(_calling(*functions), "F0 -> F1 -> F2 -> F0")


@_case
def functions_that_double_forty_times() -> Malformed:
    functions = [_function(f"F{i}", f"F{i + 1}", f"F{i + 1}") for i in range(40)]
    return Malformed(_calling(*functions, _function("F40", "Relu")), "expand")


@_case
def functions_a_thousand_deep() -> Malformed:
    functions = [_function(f"F{i}", f"F{i + 1}") for i in range(1000)]
    return Malformed(_calling(*functions, _function("F1000", "Relu")), "deep")


@_case
def function_defined_twice() -> Malformed:
    return Malformed(_calling(_function("F0", "Relu"), _function("F0", "Neg")), "F0")


@_case
def function_with_a_dangling_input() -> Malformed:
    function = _function("F0", "Relu")
    function.node[0].input[0] = "ghost"
    return Malformed(_calling(function), "ghost")


@_case
def function_with_an_output_from_nowhere() -> Malformed:
    function = _function("F0", "Relu")
    function.output[0] = "ghost"
    return Malformed(_calling(function), "ghost")


@_case
def function_with_too_many_inputs_given() -> Malformed:
    made = _calling(_function("F0", "Relu"))
    made.graph.node[0].input.append("x")
    made.graph.node[0].name = "call"
    return Malformed(made, "call")


@_case
def subgraph_output_that_shadows() -> Malformed:
    shadow = _branch([_node("Relu", ["x"], ["a"], name="shadow")], "a")
    return Malformed(_if(shadow, _branch([_node("Neg", ["x"], ["o"])], "o")), "shadow")


@_case
def subgraph_initializer_that_shadows() -> Malformed:
    branch = _branch([_node("Relu", ["x"], ["t"])], "t")
    branch.initializer.append(_weight("a", [1.0]))
    return Malformed(_if(branch, _branch([_node("Neg", ["x"], ["o"])], "o")), "'a'")


@_case
def subgraph_with_a_dangling_input() -> Malformed:
    branch = _branch([_node("Add", ["x", "ghost"], ["t"], name="inside")], "t")
    return Malformed(_if(branch, _branch([_node("Neg", ["x"], ["o"])], "o")), "inside")


@_case
def subgraph_that_reads_a_sibling() -> Malformed:
    then = _branch([_node("Relu", ["x"], ["t"])], "t")
    return Malformed(_if(then, _branch([_node("Neg", ["t"], ["o"], name="peek")], "o")), "peek")


@_case
def branches_of_different_types() -> Malformed:
    then = _branch([_node("Relu", ["x"], ["t"])], "t")
    other = _branch([_node("Cast", ["x"], ["o"], to=INT64)], "o")
    other.output[0].type.tensor_type.elem_type = INT64
    return Malformed(_if(then, other), "choice")


@_case
def subgraphs_a_thousand_deep() -> Malformed:
    branch = _branch([_node("Relu", ["x"], ["t"])], "t")
    made = _if(branch, _branch([_node("Neg", ["x"], ["o"])], "o"))
    graph = made.graph.node[1].attribute[0].g
    for level in range(1000):  # in place: protobuf copies no more than a hundred levels
        node = graph.node.add(op_type="If", input=["flag"], output=[f"t{level}"])
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
    return Malformed(made, "deep")
