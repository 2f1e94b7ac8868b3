"""QAttention against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from frontends.errors import UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.quantized_models import check, single_node

RNG = np.random.default_rng(31)
BATCH, LENGTH, HIDDEN, HEADS = 2, 5, 16, 4


def attention_inputs(weight: str, per_column: bool) -> list[Any]:
    """Return input, weight, bias, both scales, no mask, both zero points."""
    columns = 3 * HIDDEN if per_column else 1
    shape = (columns,) if per_column else ()
    low, high = (-64, 64) if weight == "int8" else (0, 256)
    return [
        RNG.integers(0, 256, (BATCH, LENGTH, HIDDEN)).astype("uint8"),
        RNG.integers(low, high, (HIDDEN, 3 * HIDDEN)).astype(weight),
        RNG.standard_normal(3 * HIDDEN).astype("float32"),
        np.array(0.02, "float32"),
        np.asarray(RNG.random(shape) * 0.01 + 0.005, "float32"),
        None,
        np.array(131, "uint8"),
        np.full(shape, 0 if weight == "int8" else 127).astype(weight),
    ]


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_self_attention(per_column: bool, unidirectional: int) -> None:
    check(
        "QAttention", attention_inputs("int8", per_column), [TensorProto.FLOAT],
        domain="com.microsoft", constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS,
        unidirectional=unidirectional, tolerance=1e-4,
    )  # fmt: skip


def test_mask_and_past() -> None:
    inputs = attention_inputs("uint8", per_column=False)
    inputs[5] = np.array([LENGTH, 3], "int32")
    check(
        "QAttention", inputs, [TensorProto.FLOAT], domain="com.microsoft",
        constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS, tolerance=1e-4,
    )  # fmt: skip
    past = RNG.standard_normal((2, BATCH, HEADS, 3, HIDDEN // HEADS)).astype("float32")
    check(
        "QAttention", [*attention_inputs("uint8", per_column=False), past],
        [TensorProto.FLOAT, TensorProto.FLOAT], domain="com.microsoft",
        constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS, unidirectional=1, tolerance=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("attribute", ["do_rotary", "past_present_share_buffer"])
def test_what_only_gpu_kernels_do_is_refused(attribute: str) -> None:
    model, _ = single_node(
        "QAttention", attention_inputs("int8", per_column=False), [TensorProto.FLOAT],
        domain="com.microsoft", constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS, **{attribute: 1},
    )  # fmt: skip
    with pytest.raises(UnsupportedOperator, match=f"QAttention: {attribute}: "):
        import_onnx(model)
