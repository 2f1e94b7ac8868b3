"""Indices, lengths and places that only the data decides, and that lie outside: `RunError`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxc
from tests.frontends.onnx.faulty_calls import Feed, Inputs, check, floats, model_of
from tests.frontends.onnx.run_model import make_model

INDICES = [
    ("Gather", ["n", 3], [2, 2], {"axis": 0}, 5),
    ("Gather", [5, "n"], [2], {"axis": 0}, 5),
    ("Gather", ["n", 3], [], {"axis": 1}, 3),
    ("GatherElements", ["n", 3], [5, 2], {"axis": 1}, 3),
    ("GatherND", ["n", 3], [4, 1], {}, 5),
    ("GatherND", ["n", 3], [4, 2], {}, 3),
    ("GatherND", ["n", 3], [5, 4, 1], {"batch_dims": 1}, 3),
    ("ScatterElements", ["n", 3], [5, 2], {"axis": 1}, 3),
    ("ScatterND", ["n", 3], [1, 1], {}, 5),
]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(("op", "shape", "places", "attributes", "size"), INDICES)
def test_an_index_out_of_range(
    op: str, shape: list, places: list[int], attributes: dict, size: int, dtype: str
) -> None:
    if op.endswith("ND") and dtype == "int32":
        pytest.skip("its indices are int64")
    inputs: Inputs = {"x": ("float32", shape), "i": (dtype, places)}
    if op.startswith("Scatter"):
        inputs["u"] = ("float32", [5, 2] if op == "ScatterElements" else [1, 3])
    given = [5 if dim == "n" else dim for dim in shape]
    if shape == [5, "n"]:
        given = [5, 3]

    def feed(last: int) -> Feed:
        indices = np.zeros(places, dtype)
        indices.reshape(-1)[-1] = last
        feeds = {"x": floats(*given), "i": indices}
        if "u" in inputs:
            feeds["u"] = floats(*(int(dim) for dim in inputs["u"][1]))
        return feeds

    model = model_of(op, inputs, **attributes)
    if op != "ScatterElements":  # there equal places have no order
        check(model, feed(-size), [])
        check(model, feed(size - 1), [])
    good = feed(0)
    if op == "ScatterElements":
        good["i"] = np.tile(np.array([0, -size + 1], dtype), (5, 1))
    far = 2**31 - 1 if dtype == "int32" else 2**62
    check(model, good, [feed(size), feed(-size - 1), feed(far), feed(-far)])


def test_a_constant_index_asks_for_a_long_enough_axis() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="the_node")
    model = make_model([node], {"x": ("float32", ["n"])}, ["y"], {"i": np.array([0, 3, -2])})
    check(model, {"x": floats(4)}, [{"x": floats(3)}, {"x": floats(0)}])


def test_an_out_of_range_index_among_many() -> None:
    """Wherever the faulty index stands, the fault reaches the caller."""
    model = model_of("Gather", {"x": ("float32", ["n"]), "i": ("int64", ["m"])})
    compiled = relaxc.compile(model, threads=2, progress=False)
    indices = np.zeros(100_000, "int64")
    assert compiled(x=floats(4), i=indices).shape == (100_000,)
    for place in (0, 50_000, 99_999):
        indices[:] = 0
        indices[place] = 4
        with pytest.raises(relaxc.RunError, match="Gather: an index is out of range") as caught:
            compiled(x=floats(4), i=indices)
        assert (caught.value.node, caught.value.tensor) == ("the_node", "i")


def test_lengths_of_reversed_sequences() -> None:
    """A length is between 0 and the number of steps; ONNX Runtime refuses others as well."""
    inputs: Inputs = {"x": ("float32", ["t", 3]), "n": ("int64", [3])}
    model = model_of("ReverseSequence", inputs, time_axis=0, batch_axis=1)
    good = {"x": floats(4, 3), "n": np.array([0, 4, 2])}
    check(model, good, [{**good, "n": np.array(n)} for n in ([0, 5, 2], [0, 4, -1])])
    with pytest.raises(relaxc.InvalidModel, match="the length of a sequence is 5"):
        fixed = make_model(
            [helper.make_node("ReverseSequence", ["x", "n"], ["y"])],
            {"x": ("float32", [4, 1])}, ["y"], {"n": np.array([5])},
        )  # fmt: skip
        relaxc.compile(fixed, threads=1, progress=False)


def test_places_of_unpooled_elements() -> None:
    inputs: Inputs = {"x": ("float32", [1, 1, 1, "w"]), "i": ("int64", [1, 1, 1, "w"])}
    model = model_of("MaxUnpool", inputs, kernel_shape=[2, 2], strides=[2, 2])
    good = {"x": floats(1, 1, 1, 2), "i": np.array([[[[0, 7]]]])}
    bad = [np.array([[[[0, place]]]]) for place in (8, -1, 2**40)]
    check(model, good, [{**good, "i": i} for i in bad])


def test_saved_models_check_as_well(tmp_path: Any) -> None:
    model = model_of("Gather", {"x": ("float32", ["n"]), "i": ("int64", [1])})
    path = relaxc.compile(model, threads=1, progress=False).save(tmp_path / "gather.so")
    loaded = relaxc.load(path)
    with pytest.raises(relaxc.RunError) as caught:
        loaded(x=floats(4), i=np.array([4]))
    assert caught.value.file == str(path)


def test_the_kind_of_a_constant_fault_is_found_while_importing() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    model = make_model([node], {"x": ("float32", [3])}, ["y"], {"i": np.array([0, 3])},
                       output_types={"y": TensorProto.FLOAT})  # fmt: skip
    with pytest.raises(relaxc.InvalidModel, match="index 3 is out of range for 3"):
        relaxc.compile(model, threads=1, progress=False)


def test_a_table_of_positions_shorter_than_the_text() -> None:
    """Rows 0 to s of 8 rows are min(s, 8): a size that is s wherever the addition is defined."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["s"], start=1, end=2),
        node("Slice", ["table", "zero", "s", "one"], ["rows"]),
        node("Add", ["x", "rows"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    constants = {"table": floats(1, 8, 4), "zero": np.asarray([0]), "one": np.asarray([1])}
    model = make_model(
        nodes, {"x": ("float32", ["b", "s", 4])}, ["y"], initializers=constants, opset=18
    )
    check(model, {"x": floats(2, 8, 4)}, [{"x": floats(2, 9, 4)}])
