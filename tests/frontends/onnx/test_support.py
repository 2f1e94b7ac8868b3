"""What a model needs is known before it is built: every missing operator, wherever it hides."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx import import_onnx, support
from frontends.onnx.support import (
    CONVERTER,
    FOLDED,
    FUNCTION_BODY,
    MODEL_FUNCTION,
    UNSUPPORTED,
    survey_operators,
)
from tests.frontends.onnx.run_model import make_model

OPSETS = {"": 18, "own": 1}


def model_with_everything() -> onnx.ModelProto:
    """A folded node, a converter, two functions, an If, and unknown operators."""
    branch = helper.make_graph(
        [
            helper.make_node("InBranch", ["x"], ["b"], "hidden", domain="own"),
            helper.make_node("Neg", ["b"], ["branch"], "negated"),
        ],
        "branch",
        [],
        [helper.make_tensor_value_info("branch", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Add", ["c", "c"], ["twice"], "folded"),
        helper.make_node("Add", ["x", "twice"], ["sum"], "added"),
        helper.make_node("Thrice", ["sum"], ["thrice"], "called", domain="own"),
        helper.make_node("Unknown", ["thrice"], ["u1"], "first", domain="own"),
        helper.make_node("Unknown", ["u1"], ["u2"], "second", domain="own"),
        helper.make_node("If", ["flag"], ["chosen"], "if", then_branch=branch, else_branch=branch),
        helper.make_node("Neg", ["chosen"], ["y"], "last"),
    ]
    model = make_model(
        nodes,
        {"x": ("float32", [3]), "flag": ("bool", [])},
        ["y"],
        {"c": np.ones(3, "float32")},
        opset=18,
        domains={"own": 1},
    )
    model.functions.append(
        helper.make_function(
            "own",
            "Thrice",
            ["a"],
            ["r"],
            [
                helper.make_node("Sum", ["a", "a", "a"], ["s"]),
                helper.make_node("InFunction", ["s"], ["r"], "inner", domain="own"),
            ],
            [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
        )
    )
    return model


def test_every_way_in_is_told_apart() -> None:
    uses = survey_operators(model_with_everything(), OPSETS, "m")
    found = {(use.title, use.route): use.nodes for use in uses}
    assert found["Add", FOLDED] == ["folded"]
    assert found["Add", CONVERTER] == ["added"]
    assert found["own.Thrice", MODEL_FUNCTION] == ["called"]
    assert found["own.Unknown", UNSUPPORTED] == ["first", "second"]
    assert found["own.InBranch", UNSUPPORTED] == ["hidden", "hidden"]
    assert found["own.InFunction", UNSUPPORTED] == ["inner"]


def test_a_schemas_function_is_a_way_in_if_all_of_its_body_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its converter the operator is expanded; without Pow's, its body cannot be."""
    without = {"MeanVarianceNormalization"}
    find = support.find_converter
    monkeypatch.setattr(
        *(support, "find_converter"),
        lambda domain, name, opset: None if name in without else find(domain, name, opset),
    )
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], "normalized")
    model = make_model([node], {"x": ("float32", [1, 2, 3, 3])}, ["y"], opset=18)
    uses = survey_operators(model, {"": 18}, "m")
    assert [(use.name, use.route) for use in uses] == [(node.op_type, FUNCTION_BODY)]
    without.add("Pow")
    uses = survey_operators(model, {"": 18}, "m")
    assert ("Pow", UNSUPPORTED, ["normalized"]) in [(u.name, u.route, u.nodes) for u in uses]


def test_all_unsupported_operators_are_listed_at_once() -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        import_onnx(model_with_everything())
    message = str(caught.value)
    for part in (
        "own.Unknown (opset 1) in 2 node(s): first, second",
        "own.InBranch (opset 1) in 2 node(s): hidden",
        "own.InFunction (opset 1) in 1 node(s): inner",
    ):
        assert part in message


@pytest.mark.parametrize("fault", [InvalidModel, UnsupportedOperator])
def test_a_converters_failure_tells_the_node_and_its_inputs(fault: type[Exception]) -> None:
    """Name, operator, opset, and the name, shape and dtype of each input."""
    if fault is InvalidModel:
        node = helper.make_node("MatMul", ["left", "right"], ["y"], "the_node")
    else:
        node = helper.make_node("Pad", ["left", "pads", "right"], ["y"], "the_node", mode="odd")
    model = make_model(
        [node],
        {
            "left": ("float32", [2, 4] if fault is InvalidModel else [2, "n"]),
            "right": ("float32", [5, 7] if fault is InvalidModel else [1]),
            "pads": ("int64", [4]),
        },
        ["y"],
    )
    with pytest.raises((InvalidModel, UnsupportedOperator)) as caught:
        import_onnx(model, dynamic_shapes={"left": {1: 4}})
    message = str(caught.value)
    for part in ("the_node", node.op_type, "opset 17", "left: float32[2, 4]", "right: float32["):
        assert part in message
