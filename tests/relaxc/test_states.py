"""States: inputs that a model holds between calls, overwritten in place by their next value."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from relaxc.errors import InvalidInput

CAPACITY, HEADS, GROUPS, SIZE = 24, 4, 2, 16
PAIRS = {"past_key": "present_key", "past_value": "present_value"}


def _model(nodes: list[onnx.NodeProto], inputs: dict, outputs: dict, **weights: Any) -> Any:
    def values(shapes: dict) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in shapes.items()
        ]

    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _filter() -> onnx.ModelProto:
    """Return y = x + s, s' = s / 2 + x."""
    nodes = [
        helper.make_node("Add", ["x", "s"], ["y"]),
        helper.make_node("Mul", ["s", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "x"], ["s_next"]),
    ]
    shape = (TensorProto.FLOAT, [3, 40])
    half = np.array(0.5, "float32")
    return _model(nodes, {"x": shape, "s": shape}, {"y": shape, "s_next": shape}, half=half)


def _cached_attention() -> onnx.ModelProto:
    """Return one token's attention over a cache, as com.microsoft has it."""
    cache = (TensorProto.FLOAT, [1, GROUPS, CAPACITY, SIZE])
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "past_key", "past_value", "valid", "total"],
        ["y", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
    )
    new = (TensorProto.FLOAT, [1, 1, GROUPS * SIZE])
    whole = (TensorProto.FLOAT, [1, 1, HEADS * SIZE])
    inputs = {"q": whole, "k": new, "v": new, "past_key": cache, "past_value": cache}
    return _model(
        [node],
        {**inputs, "valid": (TensorProto.INT32, [1])},
        {"y": whole, "present_key": cache, "present_value": cache},
        total=np.array(CAPACITY, "int32"),
    )


def _pointers(model: relaxc.CompiledModel) -> list[int]:
    """Return where the states of this thread lie."""
    return [np.from_dlpack(tensor).ctypes.data for tensor in model._held_states()._tensors]


def test_a_state_goes_from_call_to_call() -> None:
    model = relaxc.compile(_filter(), states={"s": "s_next"}, threads=1)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert [spec.name for spec in model.outputs] == ["y"]
    assert [spec.name for spec in model.states] == ["s"]
    rng, state = np.random.default_rng(0), np.zeros((3, 40), "float32")
    for _ in range(4):
        x = rng.standard_normal((3, 40)).astype("float32")
        np.testing.assert_allclose(model(x), x + state, rtol=1e-6)
        state = state * np.float32(0.5) + x
        np.testing.assert_allclose(model.read_state("s"), state, rtol=1e-6)
    model.write_states(s=np.ones((3, 40), "float32"))
    np.testing.assert_allclose(model(x), x + 1, rtol=1e-6)
    model.write_states()
    np.testing.assert_array_equal(model(x), x)


def test_a_state_is_overwritten_where_nothing_reads_it_later() -> None:
    model = relaxc.compile(_filter(), states={"s": "s_next"}, threads=1)
    before, x = _pointers(model), np.ones((3, 40), "float32")
    model(x)
    model(x)
    assert _pointers(model) == before


def test_a_state_that_is_read_elsewhere_gets_new_memory() -> None:
    """Reversed rows: an element is needed after another has been written over it."""
    shape = (TensorProto.FLOAT, [8, 5])
    order = np.arange(7, -1, -1)
    nodes = [
        helper.make_node("Gather", ["s", "order"], ["turned"], axis=0),
        helper.make_node("Add", ["turned", "x"], ["s_next"]),
        helper.make_node("Neg", ["s_next"], ["y"]),
    ]
    turning = _model(nodes, {"x": shape, "s": shape}, {"y": shape, "s_next": shape}, order=order)
    model = relaxc.compile(turning, states={"s": "s_next"}, threads=1)
    assert any(name == "update_states" for name, _, _ in model.report.declined)
    state = np.zeros((8, 5), "float32")
    for number in range(3):
        x = np.random.default_rng(number).standard_normal((8, 5)).astype("float32")
        state = state[::-1] + x
        np.testing.assert_allclose(model(x), -state, rtol=1e-6)


def test_the_cache_of_an_attention_grows_in_place() -> None:
    """Against ONNX Runtime, which is given past and present as different buffers."""
    source = _cached_attention()
    model = relaxc.compile(source, states=PAIRS, threads=1)
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng, before = np.random.default_rng(0), _pointers(model)
    past = [np.zeros((1, GROUPS, CAPACITY, SIZE), "float32") for _ in range(2)]
    for step in range(5):
        feeds = {
            name: rng.standard_normal((1, 1, heads * SIZE)).astype("float32")
            for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        }
        feeds["valid"] = np.array([step], "int32")
        want, *past = session.run(None, {**feeds, **dict(zip(PAIRS, past, strict=True))})
        np.testing.assert_allclose(model(**feeds), want, rtol=1e-4, atol=1e-5)
    assert _pointers(model) == before
    np.testing.assert_allclose(model.read_state("past_key")[:, :, :5], past[0][:, :, :5], rtol=1e-6)


def test_a_step_writes_the_new_tokens_alone() -> None:
    model = relaxc.compile(_cached_attention(), states=PAIRS, threads=1)
    marked = np.full((1, GROUPS, CAPACITY, SIZE), 7.0, "float32")
    model.write_states(past_key=marked, past_value=marked)
    feeds = {name: np.ones((1, 1, heads * SIZE), "float32")
             for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))}  # fmt: skip
    model(**feeds, valid=np.array([3], "int32"))
    changed = model.read_state("past_key") != 7.0
    assert changed[:, :, 3].all()
    assert changed.sum() == GROUPS * SIZE


def test_each_thread_has_states_of_its_own() -> None:
    model = relaxc.compile(_filter(), states={"s": "s_next"}, threads=1)
    x, seen = np.ones((3, 40), "float32"), []
    model(x)
    other = threading.Thread(target=lambda: seen.append(model(x)))
    other.start()
    other.join()
    np.testing.assert_array_equal(seen[0], x)
    np.testing.assert_array_equal(model(x), 2 * x)


def test_a_saved_model_holds_states(tmp_path: Path) -> None:
    path = relaxc.compile(_filter(), states={"s": "s_next"}, threads=1).save(tmp_path / "m.so")
    model, x = relaxc.load(path), np.ones((3, 40), "float32")
    model(x)
    np.testing.assert_array_equal(model(x), 2 * x)


@pytest.mark.parametrize(
    ("states", "match"),
    [
        ({"z": "y"}, "no input is called 'z'"),
        ({"s": "z"}, "no output is called 'z'"),
        ({"s": "y", "x": "y"}, "one state only"),
        (["s"], "must be a dict"),
    ],
)
def test_states_that_do_not_fit_are_refused(states: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        relaxc.compile(_filter(), states=states)


def test_states_of_symbolic_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match="symbolic"):
        relaxc.compile(
            _filter(), states={"s": "s_next"}, dynamic_shapes={"s": {0: "n"}, "x": {0: "n"}}
        )


def test_values_that_do_not_fit_change_nothing() -> None:
    model = relaxc.compile(_filter(), states={"s": "s_next"}, threads=1)
    with pytest.raises(InvalidInput, match="no state is called 'x'"):
        model.write_states(x=np.zeros((3, 40), "float32"))
    with pytest.raises(InvalidInput, match="s"):
        model.write_states(s=np.zeros((3, 41), "float32"))
    with pytest.raises(InvalidInput, match="'s'"):
        model(np.zeros((3, 40), "float32"), s=np.zeros((3, 40), "float32"))
    np.testing.assert_array_equal(model.read_state("s"), np.zeros((3, 40)))
