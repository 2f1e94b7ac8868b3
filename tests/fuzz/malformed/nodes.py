"""Nodes whose inputs, outputs or attributes are not those of the operator."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.malformed.case import INT64, Malformed, case, make_node, make_weight, model


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
