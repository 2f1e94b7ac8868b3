"""Malformed models: an error that names the place."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import make_model, run_imported, run_reference
from tests.fuzz.malformed import corpus
from tests.fuzz.malformed.case import Malformed, model, value

CASES = dict(corpus())


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_malformed_model_is_refused(make: Callable[[], Malformed]) -> None:
    malformed = make()
    with pytest.raises(InvalidModel) as caught:
        import_onnx(malformed.model)
    assert malformed.text in str(caught.value)


@pytest.mark.parametrize("name", ["dangling_input", "initializer_that_claims_a_terabyte"])
def test_the_error_names_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "wrong.onnx"
    onnx.save(CASES[name]().model, path)
    with pytest.raises(InvalidModel, match=r"wrong\.onnx"):
        relaxc.compile(path)


def test_every_truncation_is_refused_or_complete() -> None:
    """A cut may end between two fields; what is left is then a smaller model, or none."""
    data = model().SerializeToString()
    refused = 0
    for length in range(len(data)):
        try:
            import_onnx(data[:length])
        except (InvalidModel, UnsupportedOperator):
            refused += 1
    assert refused >= len(data) - 3


# Sizes -----------------------------------------------------------------------------------------


def _constant(name: str, array: object, dtype: str = "int64") -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


TERA = 10**12


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (helper.make_node("ConstantOfShape", ["n"], ["big"]), {"n": [TERA]}),
        (helper.make_node("Expand", ["c", "n"], ["big"]), {"c": [1.0], "n": [TERA]}),
        (helper.make_node("Tile", ["c", "n"], ["big"]), {"c": [1.0], "n": [TERA]}),
        (helper.make_node("Range", ["a", "n", "s"], ["big"]), {"a": 0, "n": TERA, "s": 1}),
        (
            helper.make_node("Pad", ["c", "n"], ["big"]),
            {"c": [1.0], "n": [TERA, 0]},
        ),
        (helper.make_node("OneHot", ["i", "n", "v"], ["big"]), {"i": [1], "n": TERA, "v": [0, 1]}),
        (helper.make_node("MatMul", ["col", "row"], ["big"]), {"col": "col", "row": "row"}),
        (helper.make_node("Add", ["col", "row"], ["big"]), {"col": "col", "row": "row"}),
        (
            helper.make_node("Einsum", ["long", "long"], ["big"], equation="i,j->ij"),
            {"long": "long"},
        ),
        (helper.make_node("Upsample", ["c", "f"], ["big"]), {"c": [1.0], "f": [1e12]}),
        (
            helper.make_node("Conv", ["img", "img"], ["big"], pads=[TERA, TERA]),
            {"img": "img"},
        ),
        (helper.make_node("HannWindow", ["n"], ["big"]), {"n": TERA}),
    ],
    ids=lambda item: item.op_type if isinstance(item, onnx.NodeProto) else "",
)
def test_a_constant_of_a_terabyte_is_not_made(node: onnx.NodeProto, constants: dict) -> None:
    """Neither folded nor refused silently: at most it is computed when the model runs."""
    shapes = {"col": (200_000, 1), "row": (1, 200_000), "long": (200_000,), "img": (1, 1, 2)}
    arrays = {
        name: np.ones(shapes[content], "float32")
        if isinstance(content, str)
        else np.asarray(content, "int64" if name in "naisd" else "float32")
        for name, content in constants.items()
    }
    last = helper.make_node("ReduceMax", ["big"], ["m"], keepdims=0)
    cast = helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT)
    opset = 9 if node.op_type == "Upsample" else 17
    made = make_model(
        [node, last, cast, helper.make_node("Add", ["x", "f"], ["y"])],
        {"x": ("float32", [2])},
        ["y"],
        arrays,
        opset=opset,
    )
    tracemalloc.start()
    try:
        import_onnx(made)
    except (InvalidModel, UnsupportedOperator) as error:
        assert str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 400e6


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        ("ConstantOfShape", [TERA, 1024]),
        ("Tile", [TERA, TERA]),
        ("Tile", [2**62, 2**62]),  # 2 * 2**63 is 0 in 64 bits
    ],
)
def test_a_result_that_no_memory_holds_is_refused(op: str, sizes: list[int]) -> None:
    inputs = ["n"] if op == "ConstantOfShape" else ["x", "n"]
    model = make_model(
        [helper.make_node(op, inputs, ["y"], "too_much")],
        {"x": ("float32", [2, 2])},
        ["y"],
        {"n": np.asarray(sizes, "int64")},
    )
    with pytest.raises(InvalidModel, match="no memory holds") as caught:
        import_onnx(model)
    assert caught.value.node == "too_much"


@pytest.mark.parametrize(
    ("op", "names", "operand"),
    [
        ("Reshape", ["x", "n"], np.array([2**62, 4])),
        ("Resize", ["x", "", "n"], np.array([1e30, 1], "float32")),
    ],
)
def test_a_size_beyond_64_bits_is_named_so(op: str, names: list[str], operand: np.ndarray) -> None:
    model = make_model(
        [helper.make_node(op, names, ["y"])], {"x": ("float32", ["n", 4])}, ["y"], {"n": operand}
    )
    with pytest.raises(InvalidModel, match="does not fit 64 bits"):
        import_onnx(model)


# External data ---------------------------------------------------------------------------------


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InvalidModel, match="regular file"):
        import_onnx(tmp_path / "pipe.onnx")


# Odd, and right --------------------------------------------------------------------------------


def test_an_opset_from_the_future_is_unsupported() -> None:
    with pytest.raises(UnsupportedOperator, match="9999"):
        import_onnx(model(opset=9999))


def test_a_graph_whose_output_is_its_input() -> None:
    made = model([], output="x")
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(relaxc.compile(made, threads=1)(x), x)


def test_nodes_of_one_name_and_very_long_names() -> None:
    long = "n" * 100_000
    nodes = [
        helper.make_node("Relu", ["x"], [long], name="same"),
        helper.make_node("Neg", [long], ["y"], name="same"),
    ]
    x = np.asarray([[-1, 2, 3]] * 2, "float32")
    np.testing.assert_array_equal(relaxc.compile(model(nodes), threads=1)(x), -np.maximum(x, 0))


def test_numbers_that_are_not_finite_are_computed_with() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=float("nan"))
    x = np.asarray([[-1, 0.5, 2]], "float32")
    made = model([node], inputs=[value("x", [1, 3])])
    np.testing.assert_array_equal(relaxc.compile(made, threads=1)(x), [[np.nan, 0.5, 2]])


def test_functions_may_call_the_same_one_often() -> None:
    """A function called from two others is no recursion."""
    calls = {"F0": ["F1", "F2"], "F1": ["F2"], "F2": ["Neg"]}
    functions = []
    for name, body in calls.items():
        nodes = [
            helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], domain="local" if op != "Neg" else "")
            for i, op in enumerate(body)
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        functions.append(
            helper.make_function("local", name, ["v0"], [f"v{len(body)}"], nodes, opsets)
        )
    made = model([helper.make_node("F0", ["x"], ["y"], domain="local")], functions=functions)
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(run_imported(made, {"x": x})[0], x)


def test_a_window_of_a_billion_channels_is_a_window_of_all() -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=10**9, alpha=4e8)
    made = model([node], inputs=[value("x", [1, 3, 2, 2])])
    x = np.random.default_rng(0).standard_normal((1, 3, 2, 2)).astype("float32")
    expected = x / (1 + 0.4 * np.sum(x * x, axis=1, keepdims=True)) ** 0.75
    np.testing.assert_allclose(run_imported(made, {"x": x})[0], expected, rtol=1e-5)


@pytest.mark.parametrize("window", [5, 31])
def test_windows_of_channels_in_both_forms(window: int) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=window, alpha=0.5)
    made = model([node], inputs=[value("x", [2, 20, 2, 2])])
    x = np.random.default_rng(0).standard_normal((2, 20, 2, 2)).astype("float32")
    np.testing.assert_allclose(
        run_imported(made, {"x": x})[0], run_reference(made, {"x": x})[0], rtol=1e-5
    )


def test_an_image_of_a_terabyte_is_not_tabulated() -> None:
    node = helper.make_node("Resize", ["x", "", "", "to"], ["y"], mode="linear")
    made = model([node], [_constant("to", [1, TERA])])
    with pytest.raises(UnsupportedOperator, match="elements"):
        import_onnx(made)


@pytest.mark.parametrize(
    ("op", "size", "attributes"),
    [
        ("Conv", 2, {}),
        ("Conv", 3, {}),  # no output at all; four are the smallest image that it fits
        ("Conv", 5, {"pads": [-9, 0, 0, 0]}),
        ("Conv", 5, {"pads": [0, -1, 0, -1], "strides": [2, 2]}),
        ("ConvInteger", 3, {}),
        ("MaxPool", 2, {"kernel_shape": [9, 9]}),
        ("AveragePool", 3, {"kernel_shape": [4, 4]}),
        ("LpPool", 3, {"kernel_shape": [4, 4]}),
    ],
)
def test_a_window_larger_than_its_image(op: str, size: int, attributes: dict) -> None:
    dtype = "uint8" if op == "ConvInteger" else "float32"
    inputs = {"x": (dtype, [1, 2, size, size])}
    if op.startswith("Conv"):
        inputs["w"] = (dtype, [2, 2, 4, 4])
    node = helper.make_node(op, list(inputs), ["y"], name="the_node", **attributes)
    with pytest.raises(InvalidModel, match="does not fit") as caught:
        import_onnx(make_model([node], inputs, ["y"]))
    assert caught.value.node is not None
    assert "the_node" in caught.value.node


@pytest.mark.parametrize(
    ("node", "constants", "text"),
    [
        (helper.make_node("Resize", ["x", "", "s"], ["y"]), {"s": [1, 1, -0.5]}, "positive"),
        (helper.make_node("Resize", ["x", "", "s"], ["y"]), {"s": [1, 1, 0]}, "positive"),
        (helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5),
         {"w": np.ones((1, 8, 4)), "r": np.ones((1, 8, 2))}, "hidden_size 5"),
        (helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], output_dtype=TensorProto.INT8),
         {"s": 1.0, "z": np.zeros((), "uint8")}, "output_dtype is int8"),
    ],
)  # fmt: skip
def test_attributes_that_contradict_the_inputs(node: Any, constants: dict, text: str) -> None:
    arrays = {
        name: array if getattr(array, "dtype", None) == "uint8" else np.asarray(array, "float32")
        for name, array in constants.items()
    }
    made = make_model([node], {"x": ("float32", [3, 2, 4])}, ["y"], arrays, opset=21)
    with pytest.raises(InvalidModel, match=text):
        import_onnx(made)


def _branch(result: str) -> onnx.GraphProto:
    node = helper.make_node("Neg", ["x"], [result])
    return helper.make_graph([node], result, [], [helper.make_tensor_value_info(result, 1, None)])


_WIDE = [2**40, 0, 0, 0]


@pytest.mark.parametrize(
    ("node", "constants", "text"),
    [
        (helper.make_node("ArgMax", ["c"], ["y"], axis=1), {"c": np.zeros((2, 0))}, "size 0"),
        (helper.make_node("HannWindow", ["n"], ["y"]), {"n": -3}, "window_size"),
        (helper.make_node("BlackmanWindow", ["n"], ["y"]), {"n": -1}, "window_size"),
        (helper.make_node("Split", ["x"], ["y", "z"], num_outputs=0), {}, "num_outputs is 0"),
        (helper.make_node("Split", ["x"], ["y", "z"], num_outputs=3), {}, "num_outputs is 3"),
        (helper.make_node("Constant", [], ["y"], value_int=1, value_float=2.0), {}, "several"),
        (helper.make_node("If", ["b"], ["y", "z"], then_branch=_branch("t"),
                          else_branch=_branch("e")), {"b": True}, "If has 2 outputs"),
        (helper.make_node("Slice", ["x", "f", "t", "a"], ["y"]),
         {"f": [0, 0], "t": [1, 1], "a": [0, -4]}, "given twice"),
        (helper.make_node("Pad", ["x", "p"], ["y"]), {"p": [*_WIDE, *_WIDE]}, "wider than"),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=_WIDE), {},
         "wider than"),
        (helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=_WIDE),
         {"w": np.ones((2, 2, 2, 2), "float32")}, "wider than"),
    ],
)  # fmt: skip
def test_numbers_and_counts_that_contradict(node: Any, constants: dict, text: str) -> None:
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    made = make_model([node], {"x": ("float32", [1, 2, 4, 4])}, ["y"], arrays, opset=18)
    made.graph.output[0].type.Clear()
    with pytest.raises(InvalidModel, match=text):
        import_onnx(made)


@pytest.mark.parametrize("kind", ["COMPLEX64", "COMPLEX128"])
def test_an_input_of_complex_numbers_is_refused(kind: str) -> None:
    made = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": ("float32", [2])}, ["y"])
    for tensor in (*made.graph.input, *made.graph.output):
        tensor.type.tensor_type.elem_type = TensorProto.DataType.Value(kind)
    with pytest.raises(UnsupportedOperator, match=kind):
        import_onnx(made)


@pytest.mark.parametrize("result", ["z", "unknown"])
def test_an_output_that_nothing_gives_is_refused_where_it_is_read(result: str) -> None:
    """An operator without a schema is asked for an output that it does not have."""
    made = make_model(
        [
            helper.make_node("FastGelu", ["x"], ["y", "unknown"], domain="com.microsoft"),
            helper.make_node("Add", ["y", "unknown"], ["z"]),
        ][: 1 + (result == "z")],
        {"x": ("float32", [2, 3])},
        [result],
        domains={"com.microsoft": 1},
    )
    with pytest.raises(InvalidModel, match="not give"):
        import_onnx(made)


def test_a_function_body_that_its_schema_cannot_build_is_refused() -> None:
    shapes = {"q": [2, 4, 32], "k": [2, 4, 32], "v": [2, 4, 32]}
    made = make_model(
        [helper.make_node("LinearAttention", [*shapes], ["y", "z"], "attends",
                          q_num_heads=4, kv_num_heads=2**31 - 1)],
        {name: ("float32", shape) for name, shape in shapes.items()},
        ["y", "z"],
        opset=27,
    )  # fmt: skip
    with pytest.raises(InvalidModel, match="contradict") as caught:
        import_onnx(made)
    assert caught.value.node == "attends"


def test_weights_of_a_wrong_rank_are_named() -> None:
    shapes = {"x": [4, 2, 3], "w": [1, 9, 3], "r": [1, 9]}
    made = make_model(
        [helper.make_node("GRU", [*shapes], ["y"], hidden_size=3)],
        {name: ("float32", shape) for name, shape in shapes.items()},
        ["y"],
    )
    with pytest.raises(InvalidModel, match="rank"):
        import_onnx(made)


def test_heads_of_symbolic_number_are_refused() -> None:
    made = make_model(
        [helper.make_node("Attention", ["q", "k", "k"], ["y"])],
        {"q": ("float32", [2, "heads", 1, 8]), "k": ("float32", [2, 2, 8, 8])},
        ["y"],
        opset=23,
    )
    with pytest.raises(UnsupportedOperator, match="number or size of heads"):
        import_onnx(made)
