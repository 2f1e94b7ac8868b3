"""Arenas compare like with like: ONNX Runtime's holds the outputs, so ours is added to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.arena_bytes import Arena, plan, render
from relaxc.ort_arena import onnxruntime_arena_bytes

pytest.importorskip("onnxruntime")


class Model:
    """An ONNX graph with random weights, written operator by operator."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.nodes, self.weights = shape, [], []
        self._rng = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        values = self._rng.standard_normal(shape).astype("float32") * 0.1
        self.weights.append(onnx.numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def save(self, path: Path, result: str) -> Path:
        kind = TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("x", kind, self.shape)],
            [helper.make_tensor_value_info(result, kind, None)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
        return path


def inverted_residuals(path: Path) -> Path:
    """MobileNetV2's blocks: widen, filter each channel, narrow, add."""
    model = Model(1, 16, 28, 28)
    value = "x"
    for _ in range(3):
        wide = model.op("Conv", value, model.weight(96, 16, 1, 1))
        wide = model.op("Clip", wide, model.weight(), model.weight())
        each = model.op("Conv", wide, model.weight(96, 1, 3, 3), group=96, pads=[1, 1, 1, 1])
        value = model.op("Add", value, model.op("Conv", each, model.weight(16, 96, 1, 1)))
    return model.save(path, model.op("GlobalAveragePool", value))


def stem(path: Path) -> Path:
    """A network's first convolution: its result dwarfs the image, and all that follows the pool."""
    model = Model(1, 3, 112, 112)
    value = model.op("Relu", model.op("Conv", "x", model.weight(64, 3, 7, 7), strides=[2, 2]))
    value = model.op("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2])
    value = model.op("Relu", model.op("Conv", value, model.weight(16, 64, 1, 1)))
    return model.save(path, model.op("GlobalAveragePool", value))


def encoder(path: Path) -> Path:
    """A transformer's layers: attention, layer norm, a wide product with GELU."""
    model = Model(1, 64, 128)
    value = "x"
    for _ in range(2):
        query, key, seen = (model.op("MatMul", value, model.weight(128, 128)) for _ in range(3))
        scores = model.op("MatMul", query, model.op("Transpose", key, perm=[0, 2, 1]))
        mixed = model.op("MatMul", model.op("Softmax", scores, axis=-1), seen)
        value = norm(model, model.op("Add", value, mixed))
        wide = model.op("MatMul", value, model.weight(128, 512))
        wide = model.op("Mul", wide, model.op("Sigmoid", wide))
        narrow = model.op("MatMul", wide, model.weight(512, 128))
        value = norm(model, model.op("Add", value, narrow))
    return model.save(path, model.op("ReduceMean", value, axes=[1], keepdims=0))


def norm(model: Model, value: str) -> str:
    return model.op("LayerNormalization", value, model.weight(128), model.weight(128))


@pytest.mark.parametrize("build", [inverted_residuals, stem, encoder])
def test_the_arena_is_at_its_bound_and_below_onnx_runtimes(build, tmp_path: Path) -> None:
    path = build(tmp_path / "model.onnx")
    planned = plan(path)
    metrics, outputs = planned.metrics, planned.outputs
    shape = [d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    theirs = onnxruntime_arena_bytes(path, {"x": np.ones(shape, np.float32)})
    assert theirs is not None
    assert metrics["arena_bytes"] == metrics["lower_bound_bytes"] > 0
    assert metrics["arena_bytes"] + outputs < theirs
    assert outputs in (16 * 4, 128 * 4)


def test_a_row_adds_the_outputs_and_divides_by_the_bound() -> None:
    row = render([Arena("m", 4000, 2000, 1600, 1000, 200, 800, 0.25)]).splitlines()[-1]
    assert row == "| m | 4,000 | 2,000 | 1,600 | 1,200 | 0.75 | 1,000 | 800 | 1.250 | 0.2 |"
