"""Softmax, norms and reductions of columns: numbers, whole lines read, each element once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from tvm import relax

from tests.cuda.emulate import launch_grid
from tests.cuda.emulator.launch import Fault
from tests.cuda.kernel_set import Kernels
from tests.cuda.ptxas import kernel_usage
from tests.cuda.rule_cases import kernels_by, operator_case, reason_of

RULE = "column_kernel"
op = relax.op


def softmax(axis: int) -> Callable[[np.ndarray], np.ndarray]:
    def compute(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    return compute


def channel_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return each pixel's channels less their mean, by their deviation."""
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return centred / deviation * scale[:, None] + shift[:, None]


CASES = {
    "softmax": operator_case(lambda x: op.nn.softmax(x, axis=0), softmax(0), (64, 64)),
    "softmax_inside": operator_case(lambda x: op.nn.softmax(x, axis=1), softmax(1), (2, 48, 33)),
    "short_softmax": operator_case(lambda x: op.nn.softmax(x, axis=1), softmax(1), (2, 3, 70)),
    "long_softmax": operator_case(lambda x: op.nn.softmax(x, axis=0), softmax(0), (1100, 40)),
    "half_softmax": operator_case(
        lambda x: op.nn.softmax(x, axis=1), softmax(1), (2, 64, 64), dtype="float16"
    ),
    "any_columns": operator_case(
        lambda x: op.nn.softmax(x, axis=0), softmax(0), (40, "n"), sizes={"n": 50}
    ),
    "norm": operator_case(
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[1]),
        channel_norm,
        (2, 64, 40),
        (64,),
        (64,),
    ),
    "sum": operator_case(lambda x: op.sum(x, axis=0), lambda x: x.sum(0), (300, 70)),
    "sum_inside": operator_case(
        lambda x: op.max(x, axis=[1, 2]), lambda x: x.max((1, 2)), (3, 8, 9, 40)
    ),
}
ONCE = ("softmax", "half_softmax")  # whole lines, and a column fits in registers


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    whole = kernels_by(RULE, CASES)
    return whole.with_broken("softmax", {"no_barrier": ("__syncthreads();", ";", 0)})


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    each = CASES[name]
    for backward in (False, True):
        traffic = kernels.run(name, each, backward=backward)
        assert traffic.bank_conflicts == 0
        if name in ONCE:
            size = 2 if each.dtype == "float16" else 4
            assert traffic.global_read_bytes == size * int(np.prod(each.shapes[0]))
            assert traffic.global_written_bytes == size * int(np.prod(each.result))


def test_a_missing_barrier_is_caught(kernels: Kernels) -> None:
    with pytest.raises(Fault, match="race|never written"):
        kernels.run("softmax", CASES["softmax"], kernel="no_barrier")


def test_others_are_declined_with_a_reason() -> None:
    reason = partial(reason_of, RULE)
    assert "short" in reason(lambda x: op.sum(x, axis=0), (8, 100))
    assert "side by side" in reason(op.nn.softmax, (2, 70_000))


def test_no_kernel_spills(kernels: Kernels, nvcc: str) -> None:
    usage = kernel_usage(nvcc, kernels.source)
    assert {name: u for name, u in usage.items() if u.spills or u.stack or u.registers > 64} == {}
    assert all(u.shared <= 8 << 10 for u in usage.values())
    threads = {name: launch_grid(f, CASES[name].sizes) for name, f in kernels.functions.items()}
    for name, grid in threads.items():
        warps = usage[f"{name}_kernel"].resident_warps(grid.threads[0])
        assert warps >= 32, (name, warps)  # half of what there is room for
