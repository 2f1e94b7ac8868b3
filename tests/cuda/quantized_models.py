"""A small quantized network as ONNX has it: convolutions, a pooled product, bytes in between."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 12, 12)


def quantized_network() -> onnx.ModelProto:
    """Return two QLinearConv (the first one of an image, padded) and a QLinearMatMul."""
    random = np.random.default_rng(0)
    kept: dict[str, np.ndarray] = {}

    def constant(name: str, value: np.ndarray) -> str:
        kept[name] = value
        return name

    def scale(name: str, value: float) -> str:
        return constant(name, np.array(value, "float32"))

    def zero(name: str, value: int) -> str:
        return constant(name, np.array(value, "uint8"))

    def bytes_of(name: str, *shape: int) -> str:
        return constant(name, random.integers(-60, 60, shape).astype("int8"))

    def convolution(x: str, at: int, out: int, channels: int, zeros: tuple[str, str]) -> list[str]:
        weight, name = bytes_of(f"w{at}", out, channels, 3, 3), f"conv{at}"
        return [
            *(x, scale(f"xs{at}", 0.02), zeros[0]),
            *(weight, constant(f"ws{at}", np.full(out, 0.01, "float32"))),
            constant(f"wz{at}", np.zeros(out, "int8")),
            *(scale(f"ys{at}", 0.05 * at), zeros[1]),
            constant(f"{name}_bias", random.integers(-500, 500, out).astype("int32")),
        ]

    zeros = [zero("z0", 114), zero("z1", 131), zero("z2", 120)]
    nodes = [
        helper.make_node(
            "QLinearConv", convolution("x", 1, 32, 3, (zeros[0], zeros[1])), ["a"], pads=[1] * 4
        ),
        helper.make_node(
            "QLinearConv", convolution("a", 2, 32, 32, (zeros[1], zeros[2])), ["b"],
            pads=[1] * 4, strides=[2, 2],
        ),
        helper.make_node("Reshape", ["b", constant("shape", np.array([6, -1], "int64"))], ["rows"]),
        helper.make_node(
            "QLinearMatMul",
            [
                *("rows", scale("rs", 0.05), zeros[2], bytes_of("m", 192, 40), scale("ms", 0.02)),
                constant("mz", np.array(0, "int8")), scale("ps", 0.9), zero("pz", 126),
            ],
            ["y"],
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "quantized",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, IMAGE)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [6, 40])],
        [numpy_helper.from_array(value, name) for name, value in kept.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
