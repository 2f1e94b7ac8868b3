"""Kernels do not check their arguments; what a kernel itself checks stays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from tir_schedules import host_target
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE


@T.prim_func
def _checked_sum(x: T.handle, y: T.handle, step: T.int32) -> None:
    """A symbolic size, a size that is known, a number, and a check of the kernel's own."""
    T.func_attr({"global_symbol": "main"})
    n = T.int64()
    a = T.match_buffer(x, (n, 4), "float32")
    b = T.match_buffer(y, (n, 4), "float32")
    assert step > 0, "a step is positive"
    for i, j in T.grid(n, 4):
        b[i, j] = a[i, j] + T.Cast("float32", step)


def _assertions(pipeline: str) -> int:
    lower, host, _ = tirx.get_tir_pipeline(pipeline)
    target = tvm.target.Target(host_target(1), host=host_target(1))
    mod = host()(lower(tirx.transform.BindTarget(target)(tvm.IRModule({"main": _checked_sum}))))
    found: list[tirx.AssertStmt] = []
    (func,) = mod.functions.values()
    tvm_ffi.structural_walk(func.body, (tirx.AssertStmt, found.append), order="pre")
    return len(found)


def test_only_the_kernels_own_check_is_left() -> None:
    assert _assertions("s_tir") > 10
    assert _assertions(KERNEL_PIPELINE) == 1


def test_arguments_are_unpacked_as_before() -> None:
    module = tvm.IRModule({"main": _checked_sum})
    call = tvm.compile(module, target=host_target(1), tir_pipeline=KERNEL_PIPELINE).jit()["main"]
    x = np.random.default_rng(0).random((7, 4), "float32")
    given, result = tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros_like(x))
    call(given, result, 3)
    np.testing.assert_array_equal(result.numpy(), x + np.float32(3))
    with pytest.raises(Exception, match="a step is positive"):
        call(given, result, 0)
