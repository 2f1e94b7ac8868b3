"""Version dispatch: the greatest version not above the model's opset decides (O5)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from frontends.onnx.registry import converter, find_converter, registered_operators
from tests.frontends.onnx.run_model import assert_like_reference, make_model

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")


def test_greatest_version_not_above_the_opset() -> None:
    old, new = find_converter("", "Clip", 10), find_converter("", "Clip", 11)
    assert old is not new
    assert find_converter("", "Clip", 6) is old
    assert find_converter("ai.onnx", "Clip", 99) is new
    assert find_converter("", "GridSample", 15) is None
    assert find_converter("nowhere", "Clip", 11) is None


def test_two_converters_of_one_version_are_refused() -> None:
    assert 11 in registered_operators()[("", "Clip")]
    with pytest.raises(ValueError, match="two converters"):
        converter("Clip", since=11)(lambda op: None)


def _attributes_or_inputs(op: str, opset: int) -> tuple:
    """Return node arguments (inputs, attributes, initializers) as the opset wants them."""
    ints = lambda *items: np.asarray(items, "int64")  # noqa: E731
    by_input = {
        "Clip": opset >= 11, "Squeeze": opset >= 13, "Unsqueeze": opset >= 13,
        "Split": opset >= 13, "ReduceMean": opset >= 18, "ReduceSum": opset >= 13,
        "Pad": opset >= 11, "Slice": opset >= 10,
    }[op]  # fmt: skip
    table = {
        "Clip": ({"min": -0.5, "max": 0.5}, [np.float32(-0.5), np.float32(0.5)]),
        "Squeeze": ({"axes": [0]}, [ints(0)]),
        "Unsqueeze": ({"axes": [0, 3]}, [ints(0, 3)]),
        "Split": ({"split": [1, 2]}, [ints(1, 2)]),
        "ReduceMean": ({"axes": [1]}, [ints(1)]),
        "ReduceSum": ({"axes": [1]}, [ints(1)]),
        "Pad": ({"pads": [0, 1, 0, 0, 0, 2]}, [ints(0, 1, 0, 0, 0, 2)]),
        "Slice": (
            {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]},
            [ints(1, -3), ints(9, -1), ints(1, 2)],
        ),
    }
    attributes, inputs = table[op]
    return ({}, inputs) if by_input else (attributes, [])


@pytest.mark.parametrize(
    ("op", "opset"),
    [
        ("Clip", 7), ("Clip", 10), ("Clip", 11), ("Clip", 13),
        ("Squeeze", 11), ("Squeeze", 13), ("Unsqueeze", 11), ("Unsqueeze", 13),
        ("Split", 7), ("Split", 11), ("Split", 13),
        ("ReduceMean", 11), ("ReduceMean", 13), ("ReduceMean", 18),
        ("ReduceSum", 11), ("ReduceSum", 13),
        ("Pad", 7), ("Pad", 11), ("Pad", 18), ("Slice", 9), ("Slice", 10), ("Slice", 13),
    ],
)  # fmt: skip
def test_attribute_or_input_by_version(op: str, opset: int) -> None:
    attributes, values = _attributes_or_inputs(op, opset)
    names = [f"c{place}" for place in range(len(values))]
    if op == "Split":
        attributes["axis"] = 1
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, ["x", *names], outputs, **attributes)
    x = X[:1] if op == "Squeeze" else X
    initializers = {n: np.asarray(v) for n, v in zip(names, values, strict=True)}
    model = make_model([node], {"x": ("float32", x.shape)}, outputs, initializers, opset=opset)
    assert_like_reference(model, {"x": x})


@pytest.mark.parametrize("opset", [7, 11, 12, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_flattens_before_13(op: str, opset: int) -> None:
    node = helper.make_node(op, ["x"], ["y"], axis=1)
    assert_like_reference(
        make_model([node], {"x": ("float32", X.shape)}, ["y"], opset=opset), {"x": X}
    )


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_dropout_passes_through(opset: int) -> None:
    node = helper.make_node("Dropout", ["x"], ["y"])
    model = make_model([node], {"x": ("float32", X.shape)}, ["y"], opset=opset)
    assert_like_reference(model, {"x": X})
