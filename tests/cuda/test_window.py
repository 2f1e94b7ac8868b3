"""Windows over channels that lie side by side: numbers, loads shared in registers, ptxas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.cuda.fused_function import fused_function
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolved, windows
from tests.cuda.ptxas import SM_80, cuda_source, kernel_usage
from tests.cuda.rule_cases import kernels_by, operator_case, reason_of
from tir_schedules import Machine, schedule_func

RULE = "window"
op = relax.op


def depthwise(size: int, stride: int, channels: int, dtype: str = "float32") -> Case:
    """Return relu(convolution + bias) of a 9 x 11 image, a kernel for each channel."""
    shapes = [(1, 9, 11, channels), (size, size, 1, channels), (channels,)]

    def emit(x: relax.Expr, w: relax.Expr, b: relax.Expr) -> relax.Expr:
        y = op.nn.conv2d(
            x, w, stride, size // 2, groups=channels, data_layout="NHWC", kernel_layout="HWIO"
        )
        return op.nn.relu(op.add(y, b))

    def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        seen = windows(x, size, stride, size // 2)
        return np.maximum(np.einsum("nyxcij,ijc->nyxc", seen, w[:, :, 0]) + b, 0)

    return operator_case(emit, expected, *shapes, dtype=dtype)


def groups(count: int, channels: int) -> Case:
    """Return a 3 x 3 convolution in groups of `channels` channels each."""
    shapes = [(1, 7, 8, count * channels), (3, 3, channels, count * channels)]

    def emit(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return op.nn.conv2d(x, w, 1, 1, groups=count, **layouts)

    def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return convolved(x, w, 1, count)

    return operator_case(emit, expected, *shapes)


CASES = {
    "depthwise": depthwise(3, 1, 32),
    "depthwise_half_stride_2": depthwise(5, 2, 16, "float16"),
    "narrow_groups": groups(4, 4),
    "max_pool": operator_case(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC"),
        lambda x: windows(x, 3, 2, 1, -np.inf).max((4, 5)),
        (1, 11, 12, 8),
    ),
    "average": operator_case(
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"),
        lambda x: x.mean((1, 2), keepdims=True),
        (2, 7, 7, 16),
    ),
}


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """Schedule for a GPU of one multiprocessor, whose threads have several pixels each."""
    whole = Machine.from_target(SM_80)
    assert whole.gpu is not None
    small = replace(whole, gpu=replace(whole.gpu, multiprocessors=1))
    return kernels_by(RULE, CASES, small)


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        traffic = kernels.run(name, CASES[name], backward=backward)
        assert traffic.barriers == traffic.shared_instructions == 0


def test_windows_share_what_they_read(kernels: Kernels) -> None:
    """Two pixels of a thread read four columns of each row, as vectors, not six."""
    traffic: Any = kernels.run("depthwise", CASES["depthwise"])
    threads = 9 * 6 * 32 // 4  # of two pixels each, the last of a row of one
    a_thread = 16 * (3 * (4 + 3) + 1)  # columns and weights of three rows, the bias
    assert traffic.global_read_bytes <= threads * a_thread
    assert traffic.global_written_bytes == 4 * 9 * 11 * 32


def test_others_are_declined_with_a_reason() -> None:
    reason = partial(reason_of, RULE)

    def pool(layout: str) -> Callable[..., relax.Expr]:
        return lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout=layout)

    assert "neighbours" in reason(pool("NCHW"), (1, 8, 16, 16))
    assert "whole vectors" in reason(pool("NHWC"), (1, 8, 8, 6))
    mean = op.nn.adaptive_avg_pool2d
    assert "few results" in reason(lambda x: mean(x, (1, 1), layout="NHWC"), (1, 32, 32, 8))


def test_no_window_spills(kernels: Kernels, nvcc: str) -> None:
    """64 registers a thread: four blocks of 256 threads share a multiprocessor.

    A large image has four pixels a thread.
    """
    functions = dict(kernels.functions)
    shapes = [(8, 56, 56, 96), (7, 7, 1, 96)]
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    large = fused_function(lambda x, w: op.nn.conv2d(x, w, 1, 3, groups=96, **layouts), shapes)
    functions["large"] = schedule_func(large, SM_80).func
    usage = kernel_usage(nvcc, cuda_source(functions))
    assert len(usage) == len(functions)
    for name, used in usage.items():
        assert used.spills == used.stack == used.shared == 0, name
        assert used.registers <= 64, name
