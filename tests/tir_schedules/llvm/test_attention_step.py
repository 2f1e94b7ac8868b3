"""Attention of one or two queries: numbers, masks, and what its machine code reads."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.tir_schedules.attention_reference import reference
from tests.tir_schedules.llvm.scheduled_kernel import AVX2, assembly, hot_loop, libm_calls, run
from tests.tir_schedules.llvm.test_attention import attend, operands
from tir_schedules.attention import attention
from tir_schedules.attention_variants import (
    all_of,
    biased,
    causal,
    in_turn,
    shown_by,
    sliding_window,
    soft_cap,
)
from tir_schedules.llvm.attention import RULE

TOLERANCE = 2e-6  # of the largest value


def _is_near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * np.abs(want).max())


@pytest.mark.parametrize("keys", [1, 7, 16, 65, 200])
@pytest.mark.parametrize(
    ("queries", "heads", "groups", "size", "width"), [(1, 4, 4, 64, 64), (2, 6, 2, 32, 48)]
)
def test_numbers(queries: int, heads: int, groups: int, size: int, width: int, keys: int) -> None:
    arrays = operands(2, queries, keys, heads, groups, size, width)
    _is_near(attend(arrays), reference(*arrays))
    shown = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    _is_near(
        attend(arrays, lambda: (None, causal(keys - queries))), reference(*arrays, shown=shown)
    )


def test_scores_are_worked_on() -> None:
    arrays = operands(1, 1, 77, 4, 4, 32, 32)
    bias = np.random.default_rng(0).standard_normal((1, 4, 1, 77)).astype("float32")
    got = attend(arrays, lambda b: (in_turn(soft_cap(20.0), biased(b)), None), (bias,))
    _is_near(got, reference(*arrays, rescore=lambda s: 20 * np.tanh(s / 20) + bias))


def test_a_query_without_keys_gives_zeros() -> None:
    arrays = operands(2, 1, 40, 2, 2, 32, 32)
    shown = np.zeros((2, 1, 1, 40), bool)
    shown[1, ..., 3:5] = True
    got = attend(arrays, lambda m: (None, shown_by(m)), (shown,))
    assert not got[0].any()
    _is_near(got, reference(*arrays, shown=shown))


def test_blocks_behind_a_window_are_skipped() -> None:
    """NaN in keys that no query sees would show, were they multiplied by weights of 0."""
    arrays = operands(1, 1, 1000, 2, 2, 32, 32)
    want = reference(*arrays, shown=np.arange(1000) >= 999 - 32)
    arrays[2][:, :700] = np.nan
    got = attend(arrays, lambda: (None, all_of(causal(999), sliding_window(left=32, offset=999))))
    _is_near(got, want)


def test_half_precision_is_widened_where_it_is_read() -> None:
    arrays = [a.astype("float16") for a in operands(1, 1, 50, 4, 2, 64, 64)]
    got = attend(arrays).astype("float32")
    np.testing.assert_allclose(got, reference(*arrays), atol=2e-3)


@pytest.mark.parametrize("keys", [3, 64, 101])
def test_a_symbolic_number_of_keys(keys: int) -> None:
    arrays = operands(1, 1, keys, 4, 4, 32, 32)
    n = te.var("n", "int64")
    shapes = [arrays[0].shape, (1, n, 4, 32), (1, n, 4, 32)]
    _is_near(attend(arrays, shapes=shapes), reference(*arrays))


def test_a_key_is_read_once_by_whole_vectors() -> None:
    """8 keys of 64 columns: 64 multiply-adds with a key from memory, none of a broadcast one."""
    tensors = [te.placeholder((1, n, 12, 64), name=name) for n, name in ((1, "q"), (512, "k"))]
    value = te.placeholder((1, 512, 12, 64), name="v")
    func = te.create_prim_func(
        [*tensors, value, attention(*tensors, value)], index_dtype_override="int64"
    )
    asm = assembly(func, RULE, AVX2)
    assert not libm_calls(asm)
    loop = hot_loop(asm, "vfmadd")
    assert sum("vfmadd" in line and "(%r" in line for line in loop) >= 56
    out = np.zeros((1, 1, 12, 64), "float32")
    arrays = operands(1, 1, 512, 12, 12, 64, 64)
    _is_near(run(func, RULE, arrays, [out])[0], reference(*arrays))
