"""Operator sets and format versions that are missing or unknown."""

from __future__ import annotations

from onnx import helper

from tests.fuzz.malformed.case import Malformed, case, make_node, model


@case
def no_opset() -> Malformed:
    made = model()
    del made.opset_import[:]
    return Malformed(made, "opset")


@case
def opset_of_another_domain_only() -> Malformed:
    made = model()
    del made.opset_import[0]
    return Malformed(made, "opset")


@case
def two_opsets_of_one_domain() -> Malformed:
    made = model()
    made.opset_import.append(helper.make_opsetid("ai.onnx", 9))
    return Malformed(made, "ai.onnx")


@case
def opset_zero() -> Malformed:
    return Malformed(model(opset=0), "opset 0")


@case
def unknown_ir_version() -> Malformed:
    made = model()
    made.ir_version = 9999
    return Malformed(made, "9999")


@case
def domain_without_opset() -> Malformed:
    return Malformed(model([make_node("Odd", ["x"], ["y"], domain="mars")]), "mars")
