"""Transposes by tiles in shared memory: numbers, whole lines on both sides, no bank conflict."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tvm import relax

from tests.cuda.emulator.launch import Fault
from tests.cuda.fused_function import fused_function
from tests.cuda.kernel_set import Kernels
from tests.cuda.ptxas import SM_80, kernel_usage
from tests.cuda.rule_cases import kernels_by, operator_case, reason_of
from tir_schedules import schedule_func

RULE = "transpose"
op = relax.op
CASES = {
    "matrix": operator_case(op.permute_dims, np.transpose, (96, 64)),
    "ragged": operator_case(op.permute_dims, np.transpose, (45, 70)),
    "half": operator_case(op.permute_dims, np.transpose, (64, 128), dtype="float16"),
    "channels_last": operator_case(
        lambda x: op.permute_dims(x, [0, 2, 3, 1]),
        lambda x: x.transpose(0, 2, 3, 1),
        (2, 40, 5, 9),
    ),
    "with_a_map": operator_case(
        lambda x, y: op.nn.relu(op.add(op.permute_dims(x, [0, 2, 1]), y)),
        lambda x, y: np.maximum(x.transpose(0, 2, 1) + y, 0),
        (2, 33, 40),
        (40, 33),
    ),
    "with_a_column": operator_case(
        lambda x, y: op.multiply(op.permute_dims(x), y), lambda x, y: x.T * y, (40, 33), (33, 1)
    ),
}


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    whole = kernels_by(RULE, CASES)
    return whole.with_broken("matrix", {"no_barrier": ("__syncthreads();", ";", 0)})


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    each = CASES[name]
    for backward in (False, True):
        traffic = kernels.run(name, each, backward=backward)
        assert traffic.bank_conflicts == 0
        if name in ("matrix", "half"):  # each sector once, both ways
            moved = (2 if each.dtype == "float16" else 4) * int(np.prod(each.result))
            assert traffic.global_read_bytes == traffic.global_written_bytes == moved


def test_any_number_of_rows() -> None:
    assert schedule_func(fused_function(op.permute_dims, [("n", 32)]), SM_80).rule == RULE


def test_a_missing_barrier_is_caught(kernels: Kernels) -> None:
    with pytest.raises(Fault, match="race|never written"):
        kernels.run("matrix", CASES["matrix"], kernel="no_barrier")


def test_others_are_declined_with_a_reason() -> None:
    reason = partial(reason_of, RULE)
    assert "0 operands" in reason(lambda x: op.permute_dims(x, [1, 0, 2]), (8, 9, 16))
    assert "2 operands" in reason(
        lambda x, y: op.add(op.permute_dims(x), op.permute_dims(y)), (32, 64), (32, 64)
    )
    assert "short" in reason(op.permute_dims, (64, 4))
    assert "not one map" in reason(op.nn.softmax, (64, 64))


def test_no_kernel_spills(kernels: Kernels, nvcc: str) -> None:
    usage = kernel_usage(nvcc, kernels.source)
    assert {name: u for name, u in usage.items() if u.spills or u.stack or u.registers > 40} == {}
    assert min(used.resident_warps(256) for used in usage.values()) >= 48  # of 64
