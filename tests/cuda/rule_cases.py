"""Cases of one rule: operators that it schedules, compiled together; what it says of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax
from tvm.tirx import PrimFunc

from tests.cuda.fused_function import fused_function
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case
from tests.cuda.ptxas import SM_80, cuda_source
from tir_schedules import Machine, schedule_func


def operator_case(
    emit: Callable[..., relax.Expr],
    expected: Callable[..., np.ndarray],
    *shapes: tuple[int | str, ...],
    dtype: str = "float32",
    sizes: dict[str, int] | None = None,
) -> Case:
    """Return operators as a case: tensors of one type, named dimensions of the given sizes."""
    known: list[tuple[int, ...]] = [
        tuple((sizes or {}).get(d, d) if isinstance(d, str) else d for d in s) for s in shapes
    ]
    result = expected(*(np.ones(s) for s in known)).shape
    func = fused_function(emit, shapes, dtype)
    return Case(func, known, result, expected, dtype, dtype, sizes or {})


def kernels_by(rule: str, cases: Mapping[str, Case], machine: Machine | None = None) -> Kernels:
    """Return all cases in one CUDA file, each scheduled by a rule (asserted)."""
    functions: dict[str, PrimFunc] = {}
    for name, case in cases.items():
        scheduled = schedule_func(case.func, SM_80, machine)
        assert scheduled.rule == rule, (name, scheduled.declined)
        functions[name] = scheduled.func
    return Kernels(functions, cuda_source(functions))


def reason_of(rule: str, emit: Callable[..., relax.Expr], *shapes: tuple[int, ...]) -> str:
    """Return why a rule declines operators of float32 tensors (asserted)."""
    result = schedule_func(fused_function(emit, shapes), SM_80)
    assert result.rule != rule
    return dict(result.declined)[rule]
