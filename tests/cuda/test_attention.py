"""Attention as one kernel under the emulator: variants, counts, and the faults of broken ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.emulate import run_kernel
from tests.cuda.emulator.launch import Fault, Traffic
from tests.cuda.kernel_set import TOLERANCES, Kernels
from tests.cuda.products import matmul
from tests.cuda.ptxas import SM_80, cuda_source, kernel_usage
from tests.tir_schedules.attention_reference import reference
from tir_schedules import Machine, schedule_func
from tir_schedules.attention import attention
from tir_schedules.attention_variants import (
    all_of,
    biased,
    causal,
    sliding_window,
    soft_cap,
)
from tir_schedules.cuda.attention import RULE, read_fused_attention
from tir_schedules.cuda.attention_kernel import AttentionKernel
from tir_schedules.cuda.attention_tile import AttentionTile
from tir_schedules.rule import Decline

_DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
# Two warps with 16 queries each; 16 keys at a time.
HALF = AttentionTile(2, 1, 1, 16, 32, 32, 2)
FULL = AttentionTile(2, 1, 1, 16, 32, 32, 4)


@dataclass(frozen=True)
class Case:
    """An attention of random operands (batch, length, heads, size), and the tile to cut it by."""

    lengths: tuple[int, int]
    tile: AttentionTile
    heads: tuple[int, int] = (2, 1)
    size: int = 32
    dtype: str = "float16"
    variant: Callable[..., dict[str, Any]] = dict
    shown: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda q, k: k == k
    bias: tuple[int, ...] | None = None
    symbolic: bool = False
    epilogue: bool = False
    sizes: dict[str, int] = field(default_factory=dict)

    def arrays(self) -> list[np.ndarray]:
        """Return q, k, v and perhaps a bias."""
        random = np.random.default_rng(sum(self.lengths))
        shapes: list[tuple[int, ...]] = [
            (1, self.lengths[at > 0], self.heads[at > 0], self.size) for at in range(3)
        ]
        shapes += [] if self.bias is None else [self.bias]
        return [random.standard_normal(shape).astype(_DTYPES[self.dtype]) for shape in shapes]

    def func(self) -> PrimFunc:
        """Return the function without a schedule."""
        shapes: list[Sequence[Any]] = [array.shape for array in self.arrays()]
        if self.symbolic:
            q, k = tirx.Var("n", "int64"), tirx.Var("m", "int64")
            shapes[:3] = [(1, x, *s[2:]) for s, x in zip(shapes, (q, k, k), strict=False)]
        tensors = [te.placeholder(s, self.dtype, f"x{at}") for at, s in enumerate(shapes)]
        result = attention(*tensors[:3], **self.variant(*tensors[3:]))
        if self.epilogue:
            rested, x = result, tensors[0]
            result = te.compute(x.shape, lambda *at: te.max(rested(*at), x(*at)), "larger")
        return te.create_prim_func([*tensors, result])

    def expected(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the result in float64."""
        rows, columns = (np.arange(length) for length in self.lengths)
        bias = arrays[3].astype("float64") if self.bias else 0.0
        shown = self.shown(rows[:, None], columns[None, :])
        want = reference(*arrays[:3], rescore=lambda s: s + bias, shown=shown)
        return np.maximum(want, arrays[0].astype("float64")) if self.epilogue else want


CASES = {
    "whole": Case((32, 32), HALF, heads=(1, 1), epilogue=True),
    # The first queries see no key, the last ones all but the first keys.
    "causal_window": Case(
        (40, 45),
        HALF,
        variant=lambda: {"mask_mod": all_of(causal(-4), sliding_window(19, None, -4))},
        shown=lambda q, k: (k <= q - 4) & (k >= q - 23),
    ),
    "float32": Case(
        (19, 37),
        FULL,
        dtype="float32",
        variant=lambda bias: {"score_mod": biased(bias), "mask_mod": causal(18)},
        shown=lambda q, k: k <= q + 18,
        bias=(1, 2, 1, 37),
    ),
    # Warps divide the keys; rows of 20 elements do not begin at 16 bytes.
    "few_queries": Case((3, 41), AttentionTile(1, 2, 1, 16, 32, 32, 2), (1, 1), 20, "bfloat16"),
    "any_length": Case(
        (35, 21),
        AttentionTile(1, 1, 2, 16, 32, 32, 2),
        (1, 1),
        symbolic=True,
        sizes={"n": 35, "m": 21},
    ),
}
_WAIT = "tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();"
_BARRIER = "__syncthreads();"
BROKEN = {  # of `whole`: what is replaced by what, which occurrence, and what is found then
    "no_wait": (_WAIT, ";", 0, "in flight"),
    "no_barrier": (_BARRIER, ";", 1, "race|in flight|never written"),
    "reads_past_a_row": ("(&(x1_ptr[(", "(&(x1_ptr[1024 + (", 0, "outside a buffer"),
}


def scheduled(case: Case) -> PrimFunc:
    func = case.func()
    return AttentionKernel(read_fused_attention(func), case.tile).write(func)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """Schedule all cases and compile them at once: g++ runs for seconds."""
    functions = {name: scheduled(case) for name, case in CASES.items()}
    whole = Kernels(functions, cuda_source(functions))
    broken = {name: how[:3] for name, how in BROKEN.items()}
    slack = ("exp2f(", "1 + 0 * exp2f(", 0)
    return whole.with_broken("whole", {**broken, "sums_do_not_shrink": slack})


def run(kernels: Kernels, name: str, kernel: str = "", backward: bool = False) -> Traffic:
    case = CASES[name]
    arrays = case.arrays()
    want = case.expected(arrays)
    result = np.full(want.shape, np.nan, arrays[0].dtype)
    traffic = run_kernel(
        kernels.functions[name],
        kernels.source,
        [*arrays, result],
        kernel=kernel or f"{name}_kernel",
        sizes=case.sizes,
        backward=backward,
    )
    error = np.abs(result.astype("float64") - want).max() / np.abs(want).max()
    assert error < TOLERANCES[case.dtype]
    return traffic


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    traffic = run(kernels, name, backward=len(name) % 2 == 0)
    assert traffic.bank_conflicts == 0
    # Nothing but the result is stored.
    case = CASES[name]
    results = case.lengths[0] * case.heads[0] * case.size * case.tile.element_bytes
    assert traffic.global_written_bytes <= 2 * results


def test_hidden_blocks_of_keys_are_not_read(kernels: Kernels) -> None:
    """Of three blocks of keys, the first queries see one and a half, the others all."""
    case = CASES["causal_window"]
    query_bytes = 40 * 2 * 32 * 2
    block_bytes = 2 * 16 * 32 * 2
    read = run(kernels, "causal_window").global_read_bytes
    seen = sum(
        case.shown(np.arange(first, min(first + 32, 40))[:, None], np.arange(key, key + 16)).any()
        for first in (0, 32)
        for key in (0, 16, 32)
    )
    assert seen < 6
    assert read <= query_bytes + 2 * seen * block_bytes


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught(name: str, kernels: Kernels) -> None:
    with pytest.raises(Fault, match=BROKEN[name][3]):
        run(kernels, "whole", kernel=name)


def test_sums_shrink_where_a_better_score_comes(kernels: Kernels) -> None:
    with pytest.raises(AssertionError):
        run(kernels, "whole", kernel="sums_do_not_shrink")


def rule_case(dtype: str, queries: int, size: int, variant: Any = None) -> PrimFunc:
    shapes = [(4, length, 32, size) for length in (queries, 512, 512)]
    tensors = [te.placeholder(s, dtype, name) for s, name in zip(shapes, "qkv", strict=True)]
    return te.create_prim_func([*tensors, attention(*tensors, **(variant or {}))])


def test_the_rule_declines_with_a_reason() -> None:
    def reason(func: PrimFunc, arch: str = "sm_80") -> str:
        machine = Machine.from_target(Target({"kind": "cuda", "arch": arch}))
        with pytest.raises(Decline) as declined:
            RULE.apply(func, machine)
        return str(declined.value)

    assert "sm_80" in reason(rule_case("float16", 64, 64), "sm_75")
    assert "256" in reason(rule_case("float16", 64, 320))
    assert "sums in float64" in reason(rule_case("float64", 64, 64))
    assert "no attention" in reason(matmul(64, 64, 64).func)


def test_no_attention_spills(nvcc: str) -> None:
    """Two tiles of queries a warp, few queries that warps share, and float32 in three parts.

    The last has windows of an image, as Swin: small heads, a bias of each head and a mask.
    """
    window = [te.placeholder((64, 49, 3, 32), "float32", name) for name in "qkv"]
    bias = te.placeholder((1, 3, 49, 49), "float32", "bias")
    mask = te.placeholder((64, 1, 49, 49), "float32", "mask")

    def rescore(score: Any, *at: Any) -> Any:
        b, h, q, k = at
        return score + bias[0, h, q, k] + mask[b, 0, q, k]

    windows = attention(*window, score_mod=rescore)
    functions = {
        "windows": te.create_prim_func([*window, bias, mask, windows]),
        "half": rule_case("float16", 512, 64, {"score_mod": soft_cap(30.0)}),
        "few": rule_case("bfloat16", 1, 128),
        "full": rule_case("float32", 512, 64, {"mask_mod": causal()}),
    }
    scheduled = {name: schedule_func(func, SM_80) for name, func in functions.items()}
    assert {each.rule for each in scheduled.values()} == {"attention"}
    source = cuda_source({name: s.func for name, s in scheduled.items()})
    assert source.count("__launch_bounds__(128, 3)") == 4, "as many as share a multiprocessor"
    usage = kernel_usage(nvcc, source)
    assert {name: u for name, u in usage.items() if u.spills or u.stack} == {}
