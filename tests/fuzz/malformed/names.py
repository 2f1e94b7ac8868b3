"""Names that are missing, doubled or unreadable, and graphs without an order."""

from __future__ import annotations

import onnx

from tests.fuzz.malformed.case import Malformed, case, make_node, make_weight, model, value


@case
def dangling_input() -> Malformed:
    return Malformed(model([make_node("Add", ["x", "ghost"], ["y"], name="adder")]), "ghost")


@case
def cycle() -> Malformed:
    nodes = [make_node("Add", ["x", "y"], ["a"], name="first"), make_node("Relu", ["a"], ["y"])]
    return Malformed(model(nodes), "first")


@case
def node_that_reads_itself() -> Malformed:
    return Malformed(model([make_node("Add", ["x", "y"], ["y"], name="self")]), "self")


@case
def tensor_produced_twice() -> Malformed:
    nodes = [make_node("Relu", ["x"], ["y"]), make_node("Neg", ["x"], ["y"], name="again")]
    return Malformed(model(nodes), "again")


@case
def output_named_like_an_input() -> Malformed:
    return Malformed(model([make_node("Relu", ["x"], ["x"])], output="x"), "'x'")


@case
def output_named_like_an_initializer() -> Malformed:
    return Malformed(
        model([make_node("Relu", ["x"], ["w"])], [make_weight("w", [1])], output="w"), "'w'"
    )


@case
def two_initializers_of_one_name() -> Malformed:
    nodes = [make_node("Add", ["x", "w"], ["y"])]
    return Malformed(model(nodes, [make_weight("w", [1]), make_weight("w", [2])]), "'w'")


@case
def two_inputs_of_one_name() -> Malformed:
    return Malformed(model(inputs=[value("x"), value("x")]), "'x'")


@case
def input_without_a_name() -> Malformed:
    return Malformed(model(inputs=[value("x"), value("")]), "no name")


@case
def graph_output_that_does_not_exist() -> Malformed:
    return Malformed(model(output="nothing"), "nothing")


@case
def no_outputs() -> Malformed:
    made = model()
    del made.graph.output[:]
    return Malformed(made, "no outputs")


@case
def empty_graph() -> Malformed:
    made = model()
    made.graph.Clear()
    return Malformed(made, "no outputs")


@case
def no_graph() -> Malformed:
    made = model()
    made.ClearField("graph")
    return Malformed(made, "no graph")


@case
def name_that_is_not_utf8() -> Malformed:
    data = model([make_node("Relu", ["x"], ["hidden"]), make_node("Neg", ["hidden"], ["y"])])
    broken = data.SerializeToString().replace(b"hidden", b"hid\xff\xfen")
    return Malformed(onnx.ModelProto.FromString(broken), "UTF-8")


@case
def graph_name_that_is_not_utf8() -> Malformed:
    made = model()
    made.graph.name = "nameless"
    broken = made.SerializeToString().replace(b"nameless", b"nam\xff\xfeess")
    return Malformed(onnx.ModelProto.FromString(broken), "UTF-8")


@case
def attribute_text_that_is_not_utf8() -> Malformed:
    node = make_node("Pad", ["x", "p"], ["y"], name="frame", mode="reflect")
    node.attribute[0].s = b"ref\xff\xfe"
    return Malformed(model([node], [make_weight("p", [0, 1, 0, 1], "int64")]), "frame")
