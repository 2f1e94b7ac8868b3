"""Fused products and convolutions of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.frontends.onnx.quantized_models import check

RNG = np.random.default_rng(11)
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ((2, 3, 5, 4), (3, 4, 6), {"alpha": 0.5}),
        ((2, 4, 5), (2, 6, 4), {"transA": 1, "transB": 1}),
        ((5, 2, 3, 4), (2, 3, 4, 6), {"transBatchA": 1}),
        (
            (4, 2, 3, 5),
            (6, 2, 3, 4),
            {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
        ),
    ],
)
def test_fused_matmul(left: tuple[int, ...], right: tuple[int, ...], options: Any) -> None:
    check("FusedMatMul", [floats(*left), floats(*right)], [TensorProto.FLOAT], domain=MICROSOFT,
          **options)  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("Tanh", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.9]),
     ("HardSigmoid", [0.3, 0.4])],
)  # fmt: skip
@pytest.mark.parametrize("residual", [False, True])
def test_fused_conv(activation: str, parameters: list[float], residual: bool) -> None:
    inputs = [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4)]
    if residual:
        inputs.append(floats(1, 4, 6, 6))
    options: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    check(
        "FusedConv", inputs, [TensorProto.FLOAT], domain=MICROSOFT, constant=(1, 2),
        activation=activation, pads=[1, 1, 1, 1], **options,
    )  # fmt: skip


def test_fused_gemm() -> None:
    check(
        "FusedGemm", [floats(4, 5), floats(6, 5), floats(6)], [TensorProto.FLOAT],
        domain=MICROSOFT, constant=(1, 2), transB=1, alpha=0.5, beta=2.0,
        activation="LeakyRelu", activation_alpha=0.2,
    )  # fmt: skip
