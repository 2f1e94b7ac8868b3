"""Views are never kernels, through the whole compiler."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

import relaxc


def test_p8_pool_then_reshape_then_softmax_is_two_kernels() -> None:
    """P8: a reshape between a global pool and a softmax is a view."""
    node = helper.make_node
    nodes = [
        node("GlobalAveragePool", ["x"], ["pooled"]),
        node("Reshape", ["pooled", "same"], ["kept"]),
        node("Reshape", ["kept", "flat"], ["row"]),
        node("Softmax", ["row"], ["y"], axis=1),
    ]
    shapes = {"same": [2, 8, 1, 1], "flat": [2, 8]}
    graph = helper.make_graph(
        nodes,
        "pool",
        [helper.make_tensor_value_info("x", 1, [2, 8, 5, 5])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.array(v, "int64"), name) for name, v in shapes.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = relaxc.compile(proto, threads=1, progress=False)
    names = [kernel["name"] for kernel in model.kernels]
    assert len(names) <= 2 and not any("reshape" in name for name in names)
    x = np.random.default_rng(0).standard_normal((2, 8, 5, 5)).astype("float32")
    rows = np.exp(x.mean((2, 3)))
    np.testing.assert_allclose(model(x), rows / rows.sum(1, keepdims=True), rtol=1e-5)
