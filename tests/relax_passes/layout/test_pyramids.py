"""Feature pyramids of symbolic size: enlarging and checks of sizes between convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from relaxc.errors import RunError


def _pyramid() -> onnx.ModelProto:
    """Return a network that adds an image, halved and enlarged again, to the image."""
    source = np.random.default_rng(5)

    def kernel(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(source.standard_normal(shape).astype("float32") / 8, name)

    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["large"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["large", "down"], ["small"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node(
            *("Resize", ["small", "", "scales"], ["enlarged"]),
            mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        ),
        helper.make_node("Add", ["large", "enlarged"], ["sum"]),
        helper.make_node("Conv", ["sum", "head"], ["y"], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    weights = [
        kernel("stem", 32, 16, 3, 3),
        kernel("down", 32, 32, 3, 3),
        kernel("head", 16, 32, 3, 3),
        numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "scales"),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, "h", "w"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "pyramid", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


@pytest.fixture(scope="module")
def pyramid() -> tuple[onnx.ModelProto, relaxc.CompiledModel]:
    model = _pyramid()
    return model, relaxc.compile(model, progress=False)


def test_all_of_it_is_in_blocks(
    pyramid: tuple[onnx.ModelProto, relaxc.CompiledModel],
) -> None:
    _, compiled = pyramid
    assert compiled.report.layout_transforms == 2  # of the input and of the output
    rules = [kernel["rule"] for kernel in compiled.report.kernels]
    assert rules.count("elementwise") <= 2, "both directions are enlarged in one kernel"


@pytest.mark.parametrize("size", [(1, 16, 24), (2, 32, 8)])
def test_numbers(
    pyramid: tuple[onnx.ModelProto, relaxc.CompiledModel], size: tuple[int, int, int]
) -> None:
    model, compiled = pyramid
    n, h, w = size
    x = np.random.default_rng(0).standard_normal((n, 16, h, w)).astype("float32")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": x})
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-4)


def test_sizes_that_do_not_meet_are_refused(
    pyramid: tuple[onnx.ModelProto, relaxc.CompiledModel],
) -> None:
    _, compiled = pyramid
    with pytest.raises(RunError, match="sum"):  # 9 rows, and 5 that were enlarged to 10
        compiled(np.zeros((1, 16, 18, 24), "float32"))
