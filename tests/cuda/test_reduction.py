"""Pooling and reductions of columns, one thread a result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm.relax import op

import relaxc
from benchmarks.gpu_cases import FAMILIES
from tests.cuda.emulate import run_kernel
from tests.cuda.fused_function import fused_function
from tests.cuda.ptxas import SM_80, cuda_source
from tir_schedules import schedule_func


def test_threads_without_a_result_store_nothing() -> None:
    """150 results, 160 threads; the emulator sees what is written past the end of a buffer."""
    func = fused_function(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)), [(1, 5, 11, 9)]
    )
    scheduled = schedule_func(func, SM_80, without=("window",))
    assert scheduled.rule == "reduction"
    x = np.random.default_rng(0).standard_normal((1, 5, 11, 9)).astype("float32")
    y = np.full((1, 5, 6, 5), np.nan, "float32")
    run_kernel(scheduled.func, cuda_source({"main": scheduled.func}), [x, y])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(y, windows.max((4, 5)))


def test_a_maximum_that_keeps_nan_is_no_row_of_threads() -> None:
    """TVM knows no way for threads to combine it, and would abort the build."""
    case = replace(FAMILIES["columns"], shapes=[(300, 70)])
    model = relaxc.compile(case.source(small=False)[0], target={"kind": "cuda", "arch": "sm_80"})
    assert [kernel["rule"] for kernel in model.kernels] == ["reduction"]
    assert "__global__" in model.device_sources()["kernels.cu"]
