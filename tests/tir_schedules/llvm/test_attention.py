"""Attention as one online-softmax kernel: variants, shapes, memory, machine code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import SBlock
from tvm.tirx import AllocBuffer, BufferStore, IntImm, PrimFunc

from tests.tir_schedules.attention_reference import reference
from tests.tir_schedules.llvm.scheduled_kernel import (
    AVX2,
    HOST,
    assembly,
    libm_calls,
    machine,
    run,
)
from tir_schedules.attention import MaskMod, ScoreMod, attention
from tir_schedules.attention_variants import (
    alibi,
    alibi_slopes,
    all_of,
    any_of,
    biased,
    causal,
    in_turn,
    shorter_than,
    shown_by,
    sliding_window,
    soft_cap,
)
from tir_schedules.llvm.attention import RULE
from tir_schedules.rule import Decline

TOLERANCE = 2e-6  # of the largest value


def operands(
    batch: int, queries: int, keys: int, heads: int, groups: int, size: int, width: int
) -> list[np.ndarray]:
    """Return random q, k, v."""
    rng = np.random.default_rng(queries + keys)
    shapes = [(queries, heads, size), (keys, groups, size), (keys, groups, width)]
    return [rng.standard_normal((batch, *shape)).astype("float32") for shape in shapes]


def attend(
    arrays: list[np.ndarray],
    variant: object = None,
    extra: tuple[np.ndarray, ...] = (),
    shapes: list[tuple] | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Run the kernel; `variant(*extra tensors)` returns its score_mod and mask_mod."""
    func = function(arrays, variant, extra, shapes, scale)
    out = np.zeros((*arrays[0].shape[:3], arrays[2].shape[3]), arrays[0].dtype)
    return run(func, RULE, [*arrays, *extra], [out])[0]


def function(
    arrays: list[np.ndarray],
    variant: object = None,
    extra: tuple[np.ndarray, ...] = (),
    shapes: list[tuple] | None = None,
    scale: float | None = None,
) -> PrimFunc:
    """Return the unscheduled function; `shapes` of q, k, v may be symbolic."""
    shapes = shapes or [array.shape for array in arrays]
    tensors = [
        te.placeholder(shape, str(array.dtype), name=name)
        for shape, array, name in zip(shapes, arrays, "qkv", strict=True)
    ]
    others = [
        te.placeholder(array.shape, str(array.dtype), name=f"e{at}")
        for at, array in enumerate(extra)
    ]
    score_mod: ScoreMod | None = None
    mask_mod: MaskMod | None = None
    if variant is not None:
        score_mod, mask_mod = variant(*others)  # type: ignore[operator]
    result = attention(*tensors, score_mod=score_mod, mask_mod=mask_mod, scale=scale)
    return te.create_prim_func([*tensors, *others, result])


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Compare relative to the largest expected value."""
    assert got.shape == want.shape
    assert not np.isnan(got).any()
    assert np.abs(got - want).max() <= tolerance * max(1e-3, np.abs(want).max())


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "heads", "groups", "size", "width"),
    [
        (1, 1, 1, 1, 1, 16, 16),
        (2, 5, 5, 3, 3, 24, 24),
        (1, 64, 64, 12, 12, 64, 64),
        (1, 130, 130, 2, 2, 80, 80),
        (1, 130, 131, 4, 2, 64, 64),
        (2, 37, 200, 6, 1, 16, 24),
        (1, 1, 130, 8, 2, 64, 64),
        (3, 7, 5, 2, 2, 1, 3),
        (1, 257, 64, 1, 1, 64, 80),
    ],
)
def test_shapes(
    batch: int, queries: int, keys: int, heads: int, groups: int, size: int, width: int
) -> None:
    arrays = operands(batch, queries, keys, heads, groups, size, width)
    assert_close(attend(arrays), reference(*arrays))


Q, N = 70, 150  # not multiples of a tile
ROW, COLUMN = np.arange(Q)[:, None], np.arange(N)[None, :]
RNG = np.random.default_rng(1)
LENGTHS = np.array([0, 97], "int32")
SHOWN = RNG.random((2, 1, Q, N)) < 0.3
SHOWN[1, 0, 5] = False
KEYS_SHOWN = RNG.random((2, 1, 1, N)) < 0.5
SLOPES = np.array(alibi_slopes(3), "float32")
FULL_BIAS = RNG.standard_normal((2, 3, Q, N)).astype("float32")
KEY_BIAS = np.where(KEYS_SHOWN, np.float32(0), np.float32(-np.inf))
HEAD_BIAS = FULL_BIAS[:1, :, :1]
QUERY_BIAS = RNG.standard_normal((Q, 1)).astype("float32")
LOWEST = np.full((1, 1, Q, N), np.finfo("float32").min)
DISTANCE = (COLUMN - ROW).astype("float64")

VARIANTS = {
    "causal": (lambda: (None, causal()), (), {"shown": COLUMN <= ROW}),
    "causal_after_a_cache": (
        lambda: (None, causal(N - Q)),
        (),
        {"shown": COLUMN <= ROW + N - Q},
    ),
    "no_key_for_the_first_queries": (
        lambda: (None, causal(-40)),
        (),
        {"shown": COLUMN <= ROW - 40},
    ),
    "window": (
        lambda: (None, sliding_window(9, 3)),
        (),
        {"shown": (COLUMN >= ROW - 9) & (COLUMN <= ROW + 3)},
    ),
    "causal_window": (
        lambda: (None, all_of(causal(), sliding_window(left=20))),
        (),
        {"shown": (COLUMN <= ROW) & (COLUMN >= ROW - 20)},
    ),
    "prefix": (
        lambda: (None, any_of(causal(), lambda b, h, q, k: k < 33)),
        (),
        {"shown": (COLUMN <= ROW) | (COLUMN < 33)},
    ),
    "lengths": (
        lambda lengths: (None, shorter_than(lengths)),
        (LENGTHS,),
        {"shown": COLUMN < LENGTHS[:, None, None, None]},
    ),
    "boolean_mask": (lambda mask: (None, shown_by(mask)), (SHOWN,), {"shown": SHOWN}),
    "boolean_keys": (lambda mask: (None, shown_by(mask)), (KEYS_SHOWN,), {"shown": KEYS_SHOWN}),
    "alibi": (
        lambda slopes: (alibi(slopes), None),
        (SLOPES,),
        {"rescore": lambda s: s + SLOPES[:, None, None] * DISTANCE},
    ),
    "soft_cap": (
        lambda: (soft_cap(2.0), None),
        (),
        {"rescore": lambda s: 2 * np.tanh(s / 2)},
    ),
    "soft_cap_and_causal": (
        lambda: (soft_cap(2.0), causal()),
        (),
        {"rescore": lambda s: 2 * np.tanh(s / 2), "shown": COLUMN <= ROW},
    ),
    "full_bias": (
        lambda bias: (biased(bias), None),
        (FULL_BIAS,),
        {"rescore": lambda s: s + FULL_BIAS},
    ),
    "key_bias_of_minus_infinity": (
        lambda bias: (biased(bias), None),
        (KEY_BIAS,),
        {"rescore": lambda s: s + KEY_BIAS},
    ),
    "head_bias": (
        lambda bias: (biased(bias), None),
        (HEAD_BIAS,),
        {"rescore": lambda s: s + HEAD_BIAS},
    ),
    "query_bias_of_rank_2": (
        lambda bias: (biased(bias), None),
        (QUERY_BIAS,),
        {"rescore": lambda s: s + QUERY_BIAS},
    ),
    "bias_of_the_lowest_number": (
        lambda bias: (biased(bias), None),
        (LOWEST,),
        {"rescore": lambda s: (s.astype("float32") + LOWEST).astype("float64")},
    ),
    "cap_then_bias": (
        lambda bias: (in_turn(soft_cap(3.0), biased(bias)), causal()),
        (FULL_BIAS,),
        {"rescore": lambda s: 3 * np.tanh(s / 3) + FULL_BIAS, "shown": COLUMN <= ROW},
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str) -> None:
    variant, extra, expected = VARIANTS[name]
    arrays = operands(2, Q, N, 3, 3, 16, 16)
    assert_close(attend(arrays, variant, extra), reference(*arrays, **expected))


def test_grouped_heads_under_a_mask() -> None:
    arrays = operands(2, 33, 33, 8, 2, 16, 16)
    shown = np.tril(np.ones((33, 33), bool))
    assert_close(attend(arrays, lambda: (None, causal())), reference(*arrays, shown=shown))


def test_a_scale_of_its_own() -> None:
    arrays = operands(1, 9, 20, 2, 2, 16, 16)
    assert_close(attend(arrays, scale=-1.5), reference(*arrays, scale=-1.5))


def test_large_scores_do_not_overflow() -> None:
    q, k, v = operands(1, 20, 90, 2, 2, 16, 16)
    q *= 300
    assert_close(attend([q, k, v]), reference(q, k, v), 1e-4)


def test_nan_reaches_the_queries_that_see_it() -> None:
    q, k, v = operands(1, 20, 40, 1, 1, 16, 16)
    k[0, 10] = np.nan
    func = function([q, k, v], lambda: (None, causal()))
    (got,) = run(func, RULE, [q, k, v], [np.zeros_like(q)])
    assert np.isnan(got[0, 10:]).all()
    assert not np.isnan(got[0, :10]).any()


@pytest.mark.parametrize("lengths", [(1, 1, 1), (3, 64, 64), (1, 5, 130), (2, 130, 61)])
def test_symbolic_lengths(lengths: tuple[int, int, int]) -> None:
    batch, queries, keys = lengths
    arrays = operands(batch, queries, keys, 3, 3, 16, 24)
    b, m, n = (te.var(name, "int64") for name in "bmn")
    shapes = [(b, m, 3, 16), (b, n, 3, 16), (b, n, 3, 24)]
    shown = np.tril(np.ones((queries, keys), bool), 2)
    got = attend(arrays, lambda: (None, causal(2)), (), shapes)
    assert_close(got, reference(*arrays, shown=shown))


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11)])
def test_narrow_operands_are_summed_in_float32(dtype: str, unit: float) -> None:
    arrays = [array.astype(dtype) for array in operands(1, 33, 70, 2, 1, 24, 24)]
    assert_close(attend(arrays).astype("float64"), reference(*arrays), 2 * unit)


def test_what_follows_stays_a_stage() -> None:
    arrays = operands(1, 40, 40, 2, 2, 16, 16)
    tensors = [te.placeholder(array.shape, name=n) for array, n in zip(arrays, "qkv", strict=True)]
    func = te.create_prim_func([*tensors, topi.nn.relu(attention(*tensors))])
    (got,) = run(func, RULE, arrays, [np.zeros_like(arrays[0])])
    assert_close(got, np.maximum(reference(*arrays), 0))


def _elements(buffers: list) -> int:
    """Return the elements of buffers, symbolic sizes counted as a million."""
    sizes = [
        math.prod(int(d.value) if isinstance(d, IntImm) else 10**6 for d in buffer.shape)
        for buffer in buffers
    ]
    return sum(sizes)


@pytest.mark.parametrize("symbolic", [False, True])
def test_memory_is_linear_in_the_tokens(symbolic: bool) -> None:
    tokens = 4096
    n = te.var("n", "int64") if symbolic else tokens
    shape = (1, n, 12, 64)
    tensors = [te.placeholder(shape, name=name) for name in "qkv"]
    func = te.create_prim_func([*tensors, attention(*tensors, mask_mod=causal())])
    scheduled = RULE.apply(func, machine()).mod["main"]
    held: list = []
    tvm_ffi.structural_walk(scheduled.body, (AllocBuffer, lambda a: held.append(a.buffer)))
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(scheduled.body, (SBlock, blocks.append))
    assert all(not block.alloc_buffers for block in blocks)
    assert held
    assert 0 < _elements(held) * 4 < 1 << 20  # no buffer depends on the number of tokens at all


def test_one_kernel_reads_its_operands_and_writes_its_result() -> None:
    func = function(operands(1, 128, 128, 12, 12, 64, 64))
    scheduled = RULE.apply(func, machine()).mod["main"]
    stored: set = set()
    tvm_ffi.structural_walk(scheduled.body, (BufferStore, lambda s: stored.add(s.buffer)))
    assert [p for p in scheduled.params if p in stored] == [scheduled.params[-1]]
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(scheduled.body, (SBlock, blocks.append))
    assert sorted(str(block.name_hint) for block in blocks) == ["attention", "root"]


@pytest.mark.parametrize("target", [AVX2, HOST], ids=["avx2", "host"])
@pytest.mark.parametrize("size", [64, 80])
def test_tiles_stay_in_registers(target: tvm.target.Target, size: int) -> None:
    asm = assembly(function(operands(1, 512, 512, 2, 2, size, size)), RULE, target)
    assert not libm_calls(asm)
    loops = [
        block.splitlines()
        for block in asm.split("\n.LBB")
        if block.count("vfmadd231ps") >= 8 and block.count("vbroadcastss") >= 4
    ]
    assert len(loops) >= 2  # the scores and the weighted sums
    for lines in loops:
        at = [number for number, line in enumerate(lines) if "vfmadd231ps" in line]
        loop = lines[at[0] : at[-1]]
        assert [line for line in loop if "(%rsp)" in line or "(%rbp)" in line] == []


def test_a_causal_mask_skips_the_blocks_it_hides() -> None:
    """A key that is read but hidden would still make 0 * NaN of its value."""
    arrays = operands(1, 256, 256, 1, 1, 16, 16)
    q, k, v = arrays
    k[0, 128:], v[0, 128:] = np.nan, np.nan
    (got,) = run(function(arrays, lambda: (None, causal())), RULE, arrays, [np.zeros_like(q)])
    want = reference(q[:, :96], k[:, :96], v[:, :96], shown=np.tril(np.ones((96, 96), bool)))
    assert_close(got[:, :96], want)


def test_another_function_is_declined() -> None:
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Decline, match="no attention"):
        RULE.apply(te.create_prim_func([x, topi.nn.softmax(x)]), machine())


def test_float64_is_declined() -> None:
    arrays = [array.astype("float64") for array in operands(1, 4, 4, 1, 1, 8, 8)]
    with pytest.raises(Decline, match="float64"):
        RULE.apply(function(arrays), machine())


def test_two_attentions_are_declined() -> None:
    tensors = [te.placeholder((1, 8, 2, 16), name=name) for name in "qkv"]
    once = attention(*tensors)
    func = te.create_prim_func([*tensors, attention(once, *tensors[1:])])
    with pytest.raises(Decline, match="several"):
        RULE.apply(func, machine())
