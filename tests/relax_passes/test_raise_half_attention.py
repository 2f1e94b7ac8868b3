"""Attention in half precision, rounded at each step, becomes one operator for a GPU.

That the numbers stay is shown by the BERT layer of tests/cuda/test_emulator.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.pass_base import PassContext
from relax_passes.raise_attention import raise_attention
from tests.relax_passes.attention_graphs import FLAT, B, D, Emit, R, S, T, attention_module, heads
from tests.relax_passes.attention_graphs import joined as joined_heads
from tests.relax_passes.pass_checks import context, operators
from tir_schedules import Machine


def gpu() -> PassContext:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    return PassContext(target, Machine.from_target(target))


def rounded_attention(dtype: str, sums: str = "float32") -> tvm.IRModule:
    """Return attention whose scores, mask and weights are all in `dtype`."""

    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        def product(x: relax.Expr, y: relax.Expr) -> relax.Var:
            made = emit(R.matmul(x, y, out_dtype=sums))
            return emit(R.astype(made, dtype)) if sums != dtype else made

        q, k, v = (heads(emit, x) for x in (q, k, v))
        scores = product(q, emit(R.permute_dims(k, [0, 1, 3, 2])))
        root = relax.const(np.float32(math.sqrt(D)), dtype)
        scores = emit(R.divide(scores, root))
        weights = emit(R.nn.softmax(emit(R.add(scores, mask)), -1))
        return joined_heads(emit, product(weights, v))

    return attention_module(build, *FLAT, (B, 1, S, T), dtypes=(dtype,) * 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_roundings_between_the_products_go(dtype: str) -> None:
    changed, modified = raise_attention(rounded_attention(dtype), gpu())
    assert modified
    made = operators(changed)
    assert made["nn.attention_bias"] == 1
    assert made["matmul"] == made["nn.softmax"] == 0
    relax.analysis.well_formed(changed)  # raises
    assert not raise_attention(changed, gpu())[1]
    (returned,) = [changed["main"].ret_ty]
    assert str(getattr(returned.dtype, "dtype", returned.dtype)) == dtype


def test_a_processor_leaves_it() -> None:
    assert not raise_attention(rounded_attention("float16"), context())[1]


def test_products_summed_in_half_precision_stay() -> None:
    ctx = gpu()
    assert not raise_attention(rounded_attention("float16", sums="float16"), ctx)[1]
    assert any("float32" in reason for _, _, reason in ctx.log.declined)
