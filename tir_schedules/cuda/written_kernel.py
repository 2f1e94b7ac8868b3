"""Kernels that are written out by TVM's builder, instead of scheduled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
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


def cast(value: Any, dtype: str) -> Any:
    """Return a value in a type, itself where it has it."""
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)
