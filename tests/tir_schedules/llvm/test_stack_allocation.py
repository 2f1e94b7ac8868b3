"""Small temporaries in parallel loops lie on the stack; long ones, and unknown ones, do not."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import HOST
from tir_schedules.blocks import new_schedule
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE

LIBRARY = "TVMBackendAllocWorkspace"


def _reversed_rows(rows: int, length: object, dtype: str = "float32") -> PrimFunc:
    """Return a function that doubles each row into a temporary and stores it backwards."""
    x = te.placeholder((rows, length), dtype, name="x")
    double = te.compute((rows, length), lambda i, j: x(i, j) + x(i, j), name="double")
    y = te.compute((rows, length), lambda i, j: double(i, length - 1 - j), name="y")
    sch = new_schedule(te.create_prim_func([x, y]))
    row, _ = sch.get_loops(sch.get_sblock("y"))
    sch.parallel(row)
    sch.compute_at(sch.get_sblock("double"), row)
    return sch.mod["main"].with_attr("global_symbol", "main")


def _compiled(func: PrimFunc, pipeline: str = KERNEL_PIPELINE) -> tvm.runtime.Executable:
    return tvm.compile(tvm.IRModule({"main": func}), target=HOST, tir_pipeline=pipeline)


@pytest.mark.parametrize(
    ("length", "dtype", "on_stack"),
    [(1024, "float32", True), (4096, "float32", True), (4097, "float32", False)]
    + [(2048, "float64", True), (2049, "float64", False), (16384, "int8", True)],
)
def test_up_to_16_kib(length: int, dtype: str, on_stack: bool) -> None:
    library = _compiled(_reversed_rows(3, length, dtype))
    assert (LIBRARY not in library.mod.inspect_source("ll")) == on_stack
    x = np.arange(3 * length).reshape(3, length).astype(dtype)
    y = tvm.runtime.empty((3, length), dtype)
    library.jit()["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), (x + x)[:, ::-1])


def test_the_plain_pipeline_asks_the_library() -> None:
    assert LIBRARY in _compiled(_reversed_rows(3, 1024), "default").mod.inspect_source("ll")


def test_an_unknown_length() -> None:
    func = _reversed_rows(3, tirx.Var("n", "int64"))
    assert LIBRARY in _compiled(func).mod.inspect_source("ll")
