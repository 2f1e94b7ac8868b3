"""Kernels that are written out by TVM's builder, instead of scheduled."""

from __future__ import annotations

from collections.abc import Callable

from tvm.script.ir_builder import IRBuilder
from tvm.tirx import PrimFunc
from tvm.tirx.script import builder as T


def write_kernel(func: PrimFunc, emit: Callable[[], None]) -> PrimFunc:
    """Return `func` with the body that `emit` writes, which uses the parameters of `func`."""
    with IRBuilder() as ib:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            emit()
    return PrimFunc(func.params, ib.get().body, func.ret_type, func.attrs)
