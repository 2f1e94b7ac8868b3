"""Networks that concatenate: a dense block and inception blocks; channels come in sixteens."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Network:
    def __init__(self, size: int, batch: int) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._size, self._batch = size, batch

    def weight(self, name: str, *shape: int) -> str:
        values = self._rng.standard_normal(shape).astype("float32") * 0.1
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, operator: str, inputs: list[str], name: str, **attributes: object) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def conv(self, x: str, name: str, channels: tuple[int, int], kernel: int = 1) -> str:
        inside, outside = channels
        weight = self.weight(f"w_{name}", outside, inside, kernel, kernel)
        bias = self.weight(f"b_{name}", outside)
        y = self.node("Conv", [x, weight, bias], f"{name}_conv", pads=[kernel // 2] * 4)
        return self.node("Relu", [y], name)

    def model(self, result: str, *shape: int) -> onnx.ModelProto:
        image = [self._batch, 16, self._size, self._size]
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, [self._batch, *shape])],
            self._weights,
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)


def dense_block(layers: int = 4, size: int = 9, batch: int = 1) -> onnx.ModelProto:
    """Each layer reads the concatenation of all before it (DenseNet; Huang et al., CVPR 2017)."""
    net = _Network(size, batch)
    features, channels = [net.conv("x", "stem", (16, 32), 3)], 32
    for i in range(layers):
        joined = net.node("Concat", features, f"joined{i}", axis=1) if i else features[0]
        scaled = net.node("Mul", [joined, net.weight(f"s{i}", 1, channels, 1, 1)], f"scaled{i}")
        shifted = net.node("Add", [scaled, net.weight(f"t{i}", 1, channels, 1, 1)], f"shifted{i}")
        active = net.node("Relu", [shifted], f"active{i}")
        features.append(net.conv(net.conv(active, f"p{i}", (channels, 32)), f"f{i}", (32, 16), 3))
        channels += 16
    joined = net.node("Concat", features, "all", axis=1)
    net.conv(joined, "last", (channels, 32))
    return net.model(net.node("GlobalAveragePool", ["last"], "y"), 32, 1, 1)


def inception(blocks: int = 2, size: int = 9, batch: int = 1) -> onnx.ModelProto:
    """Blocks of four branches, concatenated (GoogLeNet; Szegedy et al., CVPR 2015)."""
    net = _Network(size, batch)
    x, channels = net.conv("x", "stem", (16, 32), 3), 32
    for i in range(blocks):
        one = net.conv(x, f"one{i}", (channels, 32))
        three = net.conv(net.conv(x, f"reduce{i}", (channels, 16)), f"three{i}", (16, 32), 3)
        five = net.conv(net.conv(x, f"less{i}", (channels, 16)), f"five{i}", (16, 16), 5)
        pooled = net.node("MaxPool", [x], f"max{i}", kernel_shape=[3, 3], pads=[1] * 4)
        branches = [one, three, five, net.conv(pooled, f"pool{i}", (channels, 16))]
        x, channels = net.node("Concat", branches, f"joined{i}", axis=1), 96
    return net.model(net.node("GlobalAveragePool", [x], "y"), channels, 1, 1)
