"""Small models for the tests of the front door."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def affine_relu() -> onnx.ModelProto:
    """y = relu(x @ w + b), x float32[batch, 4]."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3)).astype("float32")
    b = rng.standard_normal(3).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
            helper.make_node("Add", ["xw", "b"], ["sum"], name="bias"),
            helper.make_node("Relu", ["sum"], ["y"], name="activation"),
        ],
        "affine_relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return _model(graph)


def two_inputs(batch: int | str = "batch") -> onnx.ModelProto:
    """total = a + b and scaled = a * b, both float32[batch, 4]."""
    shape = [batch, 4]
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["total"], name="add"),
            helper.make_node("Mul", ["a", "b"], ["scaled"], name="mul"),
        ],
        "two_inputs",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("a", "b")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("total", "scaled")],
    )
    return _model(graph)


def small_cnn() -> onnx.ModelProto:
    """A stem, a residual block with batch norm, a depthwise layer, pooling and a classifier."""
    rng = np.random.default_rng(1)
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int, low: float | None = None) -> str:
        value = rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        if low is not None:
            value = rng.uniform(low, low + 1, shape)
        weights.append(numpy_helper.from_array(value.astype("float32"), name))
        return name

    def conv(x: str, name: str, i: int, o: int, k: int, *, norm: bool = True, **attrs: Any) -> str:
        w = weight(f"{name}_w", o, i, k, k)
        pads = [k // 2] * 4
        nodes.append(helper.make_node("Conv", [x, w], [f"{name}_c"], name=name, pads=pads, **attrs))
        if not norm:
            return f"{name}_c"
        stats = [
            weight(f"{name}_{part}", o, low=low)
            for part, low in (("scale", 0.5), ("shift", -0.5), ("mean", -0.5), ("var", 0.5))
        ]
        nodes.append(
            helper.make_node(
                "BatchNormalization", [f"{name}_c", *stats], [f"{name}_n"], name=f"{name}_norm"
            )
        )
        return f"{name}_n"

    def unary(op: str, x: str, name: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op, [x], [name], name=name, **attrs))
        return name

    x = unary("Relu", conv("x", "stem", 3, 16, 3, strides=[2, 2]), "r0")
    y = unary("Relu", conv(x, "c1", 16, 16, 3), "r1")
    y = conv(y, "c2", 16, 16, 3)
    nodes.append(helper.make_node("Add", [y, x], ["res"], name="residual"))
    y = unary("Relu", "res", "r2")
    y = unary("Relu", conv(y, "dw", 1, 16, 3, group=16), "r3")
    y = unary("MaxPool", y, "pool", kernel_shape=[2, 2], strides=[2, 2])
    y = unary("Relu", conv(y, "c3", 16, 24, 1), "r4")
    y = unary("Flatten", unary("GlobalAveragePool", y, "gap"), "flat")
    nodes.append(
        helper.make_node(
            "Gemm", [y, weight("fc_w", 10, 24), weight("fc_b", 10)], ["logits"], name="fc", transB=1
        )
    )
    graph = helper.make_graph(
        nodes,
        "small_cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    return _model(graph)


def square_chain(
    size: int, nodes: list[onnx.NodeProto], result: str, weights: list[str]
) -> onnx.ModelProto:
    """Nodes on x and random weights, all float32[size, size]."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((size, size)).astype("float32") for name in weights}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [size, size])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return _model(graph)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
