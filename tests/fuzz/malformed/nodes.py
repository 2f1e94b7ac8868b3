"""Nodes whose inputs, outputs or attributes are not those of the operator."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, helper

from tests.fuzz.malformed.case import INT64, Malformed, case, make_node, make_weight, model, value


@case
def too_few_inputs() -> Malformed:
    return Malformed(model([make_node("MatMul", ["x"], ["y"], name="product")]), "product")


@case
def too_many_inputs() -> Malformed:
    return Malformed(model([make_node("Relu", ["x", "x", "x"], ["y"], name="clamp")]), "clamp")


@case
def too_many_outputs() -> Malformed:
    return Malformed(model([make_node("Relu", ["x"], ["y", "z"], name="clamp")]), "clamp")


@case
def unknown_attribute() -> Malformed:
    return Malformed(model([make_node("Relu", ["x"], ["y"], bogus=1)]), "bogus")


@case
def attribute_of_a_wrong_type() -> Malformed:
    return Malformed(model([make_node("Softmax", ["x"], ["y"], axis=1.5)]), "axis")


@case
def attribute_given_twice() -> Malformed:
    node = make_node("Softmax", ["x"], ["y"], axis=1, name="twin")
    node.attribute.append(helper.make_attribute("axis", 0))
    return Malformed(model([node]), "twin")


@case
def attribute_missing() -> Malformed:
    return Malformed(model([make_node("Concat", ["x", "x"], ["y"])]), "axis")


@case
def attribute_reference_outside_of_a_function() -> Malformed:
    node = make_node("LeakyRelu", ["x"], ["y"], name="leak", alpha=0.5)
    node.attribute[0].ref_attr_name = "slope"
    return Malformed(model([node]), "leak")


@case
def axis_out_of_range() -> Malformed:
    return Malformed(model([make_node("Softmax", ["x"], ["y"], axis=7, name="soft")]), "soft")


@case
def permutation_that_is_none() -> Malformed:
    return Malformed(
        model([make_node("Transpose", ["x"], ["y"], perm=[0, 0], name="turn")]), "turn"
    )


@case
def shapes_that_do_not_fit() -> Malformed:
    node = make_node("MatMul", ["x", "w"], ["y"], name="product")
    return Malformed(model([node], [make_weight("w", np.ones((4, 5)))]), "product")


@case
def types_that_do_not_fit() -> Malformed:
    node = make_node("Add", ["x", "w"], ["y"], name="sum")
    return Malformed(model([node], [make_weight("w", [1, 2, 3], "int64")]), "sum")


@case
def reshape_to_a_negative_size() -> Malformed:
    node = make_node("Reshape", ["x", "to"], ["y"], name="form")
    return Malformed(model([node], [make_weight("to", [-6, -1], "int64")]), "form")


@case
def output_type_that_is_not_computed() -> Malformed:
    made = model([make_node("Cast", ["x"], ["y"], to=INT64)])
    return Malformed(made, "'y'" if made.graph.output[0].name == "y" else "")


def _equation(text: str) -> Malformed:
    node = make_node("Einsum", ["x"], ["y"], name="contract", equation=text)
    return Malformed(model([node]), "contract")


@case
def equation_with_a_stray_dot() -> Malformed:
    """Onnx's own shape inference never ends on it."""
    return _equation("i.j")


@case
def equation_with_two_ellipses() -> Malformed:
    return _equation("i...j...->j")


@case
def equation_with_half_an_arrow() -> Malformed:
    return _equation("-ij")


@case
def equation_given_to_a_function() -> Malformed:
    node = make_node("Einsum", ["a"], ["b"], name="contract")
    node.attribute.add(name="equation", type=AttributeProto.STRING, ref_attr_name="rule")
    body = helper.make_function(
        "local", "Apply", ["a"], ["b"], [node], [helper.make_opsetid("", 17)], attributes=["rule"]
    )
    call = make_node("Apply", ["x"], ["y"], domain="local", rule="ij.")
    return Malformed(model([call], functions=[body]), "'ij.' in equation 'ij.'")


@case
def constant_without_a_value() -> Malformed:
    return Malformed(model([make_node("Constant", [], ["y"])]), "no attribute holds the constant")


@case
def cast_to_no_type() -> Malformed:
    return Malformed(model([make_node("Cast", ["x"], ["y"], to=99)]), "attribute to is 99")


@case
def no_groups() -> Malformed:
    weights = [make_weight("s", [1.0] * 3)]
    node = make_node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=0)
    return Malformed(model([node], weights, opset=21), "attribute num_groups is 0")


@case
def blocks_without_pixels() -> Malformed:
    node = make_node("DepthToSpace", ["x"], ["y"], blocksize=0)
    inputs = [value("x", (1, 4, 2, 2))]
    return Malformed(model([node], inputs=inputs), "attribute blocksize is 0")


@case
def more_scan_inputs_than_inputs() -> Malformed:
    body = helper.make_graph(
        [make_node("Neg", ["a"], ["b"])], "body", [value("a", (3,))], [value("b", (3,))]
    )
    node = make_node("Scan", ["x"], ["y"], num_scan_inputs=5, body=body)
    return Malformed(model([node]), "num_scan_inputs is 5, the node has 1 inputs")
