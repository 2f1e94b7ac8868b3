"""Maps of bytes: one that is repeated along a row is no vector, which TVM has no code for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.cuda.emulate import run_kernel
from tests.cuda.fused_function import fused_function
from tests.cuda.ptxas import SM_80, cuda_source
from tir_schedules import schedule_func

Emit = Callable[[relax.Expr, relax.Expr], relax.Expr]
MAPS: dict[str, tuple[Emit, Callable[..., np.ndarray], tuple[int, ...]]] = {
    "scalar": (op.subtract, np.subtract, ()),
    "column": (op.subtract, np.subtract, (64, 1)),
    "row": (op.subtract, np.subtract, (256,)),
    "compared": (
        lambda x, z: op.where(op.greater(x, z), x, z),
        lambda x, z: np.where(x > z, x, z),
        (64, 1),
    ),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_that_are_repeated(dtype: str) -> None:
    random = np.random.default_rng(0)
    functions, cases = {}, {}
    for name, (emit, expected, shape) in MAPS.items():
        scheduled = schedule_func(fused_function(emit, [(64, 256), shape], dtype), SM_80)
        assert scheduled.rule == "elementwise"
        functions[name] = scheduled.func
        x, z = (random.integers(0, 100, s).astype(dtype) for s in ((64, 256), shape))
        cases[name] = (x, z, expected(x, z))
    source = cuda_source(functions)
    for name, (x, z, want) in cases.items():
        got = np.zeros_like(want)
        arrays = [x, np.asarray(z), got]
        run_kernel(functions[name], source, arrays, kernel=f"{name}_kernel")
        np.testing.assert_array_equal(got, want)
