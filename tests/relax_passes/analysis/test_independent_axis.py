"""Which models may be padded along an axis: proved from the loop nests, with the obstacle named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from frontends.onnx import import_onnx
from relax_passes.analysis.independent_axis import padding_obstacle
from relax_passes.pass_base import PassContext
from tests.frontends.onnx.run_model import make_model
from tir_schedules.machine import Machine, host_target


def obstacle(model: onnx.ModelProto, symbol: str = "n") -> str | None:
    target = host_target(1)
    context = PassContext(target, Machine.from_target(target), 1)
    return padding_obstacle(import_onnx(model).module, symbol, context)


def _chain(*nodes: tuple, shape: tuple = ("n", 5, 4), kind: int = 1, **weights) -> onnx.ModelProto:
    made = []
    for number, (op, extra, attributes) in enumerate(nodes):
        last = number == len(nodes) - 1
        names = [f"t{number}" if number else "x", *extra]
        made.append(helper.make_node(op, names, ["y" if last else f"t{number + 1}"], **attributes))
    return make_model(
        made, {"x": ("float32", list(shape))}, ["y"], weights, output_types={"y": kind}
    )


W = np.ones((4, 6), "float32")
IMAGE = ("n", 3, 8, 8)
KERNEL = np.ones((4, 3, 3, 3), "float32")

INDEPENDENT = {
    "elementwise": _chain(("Relu", [], {}), ("Add", ["b"], {}), b=np.ones(4, "float32")),
    "matrix product": _chain(("MatMul", ["w"], {}), w=W),
    "softmax of another axis": _chain(("Softmax", [], {"axis": 2})),
    "norm": _chain(("LayerNormalization", ["g"], {"axis": -1}), g=np.ones(4, "float32")),
    "mean of another axis": _chain(("ReduceMean", [], {"axes": [1]})),
    "transpose": _chain(("Transpose", [], {"perm": [2, 0, 1]})),
    "reshape behind the axis": _chain(("Flatten", [], {"axis": 1}), ("Gemm", ["w"], {}),
                                      w=np.ones((20, 3), "float32")),
    "convolution": _chain(
        ("Conv", ["k"], {"pads": [1, 1, 1, 1]}),
        ("MaxPool", [], {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", [], {}),
        shape=IMAGE,
        k=KERNEL,
    ),
    "convolution of an image that a run must check": _chain(
        ("Conv", ["k"], {}), shape=("n", 3, "h", 8), k=KERNEL
    ),
    "a row read by its own index": _chain(
        ("Cast", [], {"to": TensorProto.INT64}), ("Gather", [], {}), shape=("n",)
    ),
}  # fmt: skip
# Gather takes the table first.
INDEPENDENT["a row read by its own index"].graph.node[1].input[:] = ["table", "t1"]
INDEPENDENT["a row read by its own index"].graph.initializer.append(
    onnx.numpy_helper.from_array(np.ones((9, 2), "float32"), "table")
)

MIXED = {
    "softmax": (_chain(("Softmax", [], {"axis": 0})), "along n"),
    "mean": (_chain(("ReduceMean", [], {"axes": [0]})), "along n"),
    "contraction": (
        _chain(("Transpose", [], {}), ("MatMul", ["x"], {}), shape=("n", 4)),
        "along n",
    ),
    "convolution along it": (
        _chain(("Conv", ["k"], {}), shape=(1, 3, "n", 8), k=KERNEL),
        "holds computes with the size n",
    ),
    "cumulative sum": (_chain(("CumSum", ["a"], {}), a=np.asarray(0)), "n"),
    "size as a value": (
        _chain(("Shape", [], {}), ("Cast", [], {"to": TensorProto.FLOAT})),
        "n",
    ),
    "reshape across it": (
        _chain(("Reshape", ["to"], {}), shape=("n", 4), to=np.asarray([2, -1, 2])),
        "n",
    ),
    "twice": (_chain(("Relu", [], {}), shape=("n", "n")), "(n, n)"),
    "reversed": (
        _chain(
            ("Slice", ["s", "e", "a", "p"], {}),
            s=np.asarray([-1]),
            e=np.asarray([-(2**62)]),
            a=np.asarray([0]),
            p=np.asarray([-1]),
        ),
        "n",
    ),
}


@pytest.mark.parametrize("model", INDEPENDENT.values(), ids=INDEPENDENT)
def test_an_independent_axis(model: onnx.ModelProto) -> None:
    assert obstacle(model) is None


@pytest.mark.parametrize(("model", "text"), MIXED.values(), ids=MIXED)
def test_places_that_are_mixed(model: onnx.ModelProto, text: str) -> None:
    found = obstacle(model)
    assert found is not None and text in found


def test_an_unknown_symbol() -> None:
    assert "no input" in str(obstacle(INDEPENDENT["elementwise"], "m"))
