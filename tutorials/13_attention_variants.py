"""Tutorial 13: one attention computation, many variants, each one kernel.

    python tutorials/13_attention_variants.py

A variant is two functions: `score_mod` rewrites a score, `mask_mod` tells which keys a query sees.
The steps show the plain computation, the kernel that takes its place, and some compositions with
their numbers against NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
import tvm_ffi
from stage_printing import title
from tvm import te
from tvm.s_tir import SBlock
from tvm.tirx import AllocBuffer, PrimFunc

from tir_schedules import Scheduled, host_target, schedule_func
from tir_schedules.attention import STAGE, MaskMod, ScoreMod, attention
from tir_schedules.attention_variants import (
    alibi,
    alibi_slopes,
    all_of,
    causal,
    in_turn,
    sliding_window,
    soft_cap,
)
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE

TOKENS, HEADS, SIZE = 200, 4, 32
TARGET = host_target(1)
SLOPES = np.array(alibi_slopes(HEADS), "float32")
ROW, COLUMN = np.arange(TOKENS)[:, None], np.arange(TOKENS)[None, :]
Rescore = Callable[[np.ndarray], np.ndarray]


def function(score_mod: Callable[[te.Tensor], ScoreMod], mask_mod: MaskMod | None) -> PrimFunc:
    """Return attention of (1, tokens, heads, size) operands and one slope a head."""
    shape = (1, TOKENS, HEADS, SIZE)
    q, k, v = (te.placeholder(shape, name=name) for name in "qkv")
    slopes = te.placeholder((HEADS,), name="slopes")
    out = attention(q, k, v, score_mod=score_mod(slopes), mask_mod=mask_mod)
    return te.create_prim_func([q, k, v, slopes, out], index_dtype_override="int64")


def expected(arrays: list[np.ndarray], rescore: Rescore, shown: np.ndarray | bool) -> np.ndarray:
    q, k, v = (array.astype("float64") for array in arrays)
    scores = rescore(np.einsum("bihd,bjhd->bhij", q, k) * SIZE**-0.5)
    scores = np.where(shown, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhc->bihc", weights / weights.sum(-1, keepdims=True), v)


def run(scheduled: Scheduled, arrays: list[np.ndarray]) -> np.ndarray:
    func = scheduled.func.with_attr("global_symbol", "main")
    call = tvm.compile(
        tvm.IRModule({"main": func}), target=TARGET, tir_pipeline=KERNEL_PIPELINE
    ).jit()["main"]
    out = tvm.runtime.tensor(np.full(arrays[0].shape, np.nan, "float32"))
    call(*(tvm.runtime.tensor(array) for array in [*arrays, SLOPES]), out)
    return out.numpy()


def main() -> None:
    rng = np.random.default_rng(0)
    shape = (1, TOKENS, HEADS, SIZE)
    arrays = [rng.standard_normal(shape).astype("float32") for _ in range(3)]

    title("Step 1: the plain computation, in stages that any target can schedule")
    func = function(lambda slopes: alibi(slopes), causal())
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append), order="pre")
    for block in blocks:
        if STAGE in block.annotations:
            print(f"  {block.annotations[STAGE]!s:8} {block.writes[0]}")

    title("Step 2: one kernel, which never stores the scores")
    scheduled = schedule_func(func, TARGET)
    held: list[AllocBuffer] = []
    tvm_ffi.structural_walk(scheduled.func.body, (AllocBuffer, held.append))
    bytes_held = sum(4 * int(np.prod([int(d) for d in a.buffer.shape])) for a in held)
    print(f"rule {scheduled.rule}: {bytes_held} bytes a task; the scores would be", end=" ")
    print(f"{4 * HEADS * TOKENS**2} bytes")
    assert scheduled.rule == "attention"

    title("Step 3: variants by composition")
    distance = (COLUMN - ROW).astype("float64")
    bent = SLOPES[:, None, None] * distance
    variants: dict[str, tuple[Callable, MaskMod | None, Rescore, np.ndarray | bool]] = {
        "causal ALiBi": (lambda s: alibi(s), causal(), lambda x: x + bent, COLUMN <= ROW),
        "soft cap": (lambda s: soft_cap(2.0), None, lambda x: 2 * np.tanh(x / 2), True),
        "capped ALiBi in a causal window of 16": (
            lambda s: in_turn(soft_cap(2.0), alibi(s)),
            all_of(causal(), sliding_window(left=15)),
            lambda x: 2 * np.tanh(x / 2) + bent,
            (COLUMN <= ROW) & (COLUMN >= ROW - 15),
        ),
    }
    for name, (score_mod, mask_mod, rescore, shown) in variants.items():
        scheduled = schedule_func(function(score_mod, mask_mod), TARGET)
        got, want = run(scheduled, arrays), expected(arrays, rescore, shown)
        error = np.abs(got - want).max() / np.abs(want).max()
        print(f"  {name}: rule {scheduled.rule}, error {error:.1e}")
        assert error < 1e-5


if __name__ == "__main__":
    main()
