"""Kernels that are given parts of an arena: by address where there are any."""

from __future__ import annotations

import pytest
import tvm
from tvm.target import Target

from relax_passes.memory.buffer_offsets import accept_offsets
from tests.cuda.products import matmul
from tests.cuda.ptxas import SM_80, cuda_source
from tir_schedules import schedule_func


def _planned(rows: int, dtype: str, target: Target) -> tvm.tirx.PrimFunc:
    scheduled = schedule_func(matmul(rows, 1000, 768, dtype=dtype).func, target)
    return accept_offsets(tvm.IRModule({"k": scheduled.func}), target.kind.name)["k"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 64])
def test_a_cuda_kernel_is_what_it_was_without_offsets(rows: int, dtype: str) -> None:
    """It loads vectors, and computes places in 32 bits."""
    source = cuda_source({"k": _planned(rows, dtype, SM_80)})
    alone = cuda_source({"k": schedule_func(matmul(rows, 1000, 768, dtype=dtype).func, SM_80).func})
    assert "elem_offset" not in source
    assert "longlong" not in source
    assert source == alone


def test_where_a_buffer_is_no_address_the_kernel_adds_the_offset() -> None:
    target = Target({"kind": "opencl", "host": "llvm"})
    func = _planned(64, "float32", target)
    source = tvm.compile(tvm.IRModule({"k": func}), target=target).mod.imports[0].inspect_source()
    assert "elem_offset" in source
