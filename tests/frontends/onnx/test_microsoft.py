"""com.microsoft operators, quantization and decided control flow against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.run_model import assert_like_reference, make_model
from tests.frontends.onnx.test_operators import check

RNG = np.random.default_rng(5)
MICROSOFT = "com.microsoft"


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def test_gelu_family() -> None:
    check("Gelu", _floats(2, 8), domain=MICROSOFT, tolerance=1e-4)
    check("BiasGelu", _floats(2, 8), _floats(8), domain=MICROSOFT, tolerance=1e-4)
    check("FastGelu", _floats(2, 8), _floats(8), domain=MICROSOFT, tolerance=1e-4)
    check("QuickGelu", _floats(2, 8), domain=MICROSOFT, tolerance=1e-4)


@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1)])
def test_fused_matmul(flags: tuple[int, int]) -> None:
    a = _floats(2, 5, 3) if flags[0] else _floats(2, 3, 5)
    b = _floats(2, 4, 5) if flags[1] else _floats(2, 5, 4)
    check("FusedMatMul", a, b, domain=MICROSOFT, transA=flags[0], transB=flags[1], alpha=0.5)


def test_skip_layer_norm() -> None:
    check(
        "SkipLayerNormalization",
        _floats(1, 3, 8),
        _floats(1, 3, 8),
        constants=(_floats(8), _floats(8)),
        domain=MICROSOFT,
        tolerance=1e-4,
        epsilon=1e-5,
    )


def test_norms_that_also_return_statistics_and_the_sum() -> None:
    """Mean, 1 / deviation and input + skip; the RMS norms have no mean, which is then 0."""
    outputs = ["y", "mean", "inverse", "sum"]
    inputs = {name: _floats(2, 3, 8) for name in ("x", "skip")}
    constants = {name: _floats(8) for name in ("gamma", "beta", "bias")}
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "skip", "gamma", "beta", "bias"],
                         [f"a_{name}" for name in outputs], domain=MICROSOFT),
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma", "bias"],
                         [f"b_{name}" for name in outputs], domain=MICROSOFT),
        helper.make_node("SimplifiedLayerNormalization", ["x", "gamma"], ["c_y", "c_inverse"]),
    ]  # fmt: skip
    model = make_model(
        nodes, {name: ("float32", ["b", 3, 8]) for name in inputs},
        [name for node in nodes for name in node.output], constants, domains={MICROSOFT: 1},
    )  # fmt: skip
    assert_like_reference(model, inputs, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantize_and_dequantize(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.asarray([[-300.0, -0.5, 0.25, 0.75, 1.25, 300.0]], "float32")
    scale, zero = np.asarray(0.5, "float32"), np.asarray(3, dtype)
    check("QuantizeLinear", x, constants=(scale, zero), types={"y0": kind})
    q = np.asarray([[0, 1, 100], [5, 6, 7]], dtype)
    scales, zeros = np.asarray([0.5, 2.0, 1.0], "float32"), np.asarray([1, 2, 3], dtype)
    check("DequantizeLinear", q, constants=(scales, zeros), axis=1)


def test_dynamic_quantize_linear_is_expanded() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    model = make_model(
        [node], {"x": ("float32", [2, 5])}, ["q", "s", "z"],
        output_types={"q": TensorProto.UINT8, "z": TensorProto.UINT8},
    )  # fmt: skip
    assert_like_reference(model, {"x": _floats(2, 5)})


def _if_model(condition: bool | None) -> object:
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        branches[name] = helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}_out"])], name, [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [3])],
        )  # fmt: skip
    inputs: dict = {"x": ("float32", [3])}
    initializers = {}
    if condition is None:
        inputs["c"] = ("bool", [])
    else:
        initializers["c"] = np.asarray(condition)
    return make_model([helper.make_node("If", ["c"], ["y"], **branches)], inputs, ["y"],
                      initializers)  # fmt: skip


@pytest.mark.parametrize("condition", [True, False])
def test_known_condition_selects_a_branch(condition: bool) -> None:
    assert_like_reference(_if_model(condition), {"x": np.asarray([-1, 2, -3], "float32")})
