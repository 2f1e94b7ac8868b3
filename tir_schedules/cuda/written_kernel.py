"""Kernels that are written out by TVM's builder, instead of scheduled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr, PrimFunc
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


def word_of_bytes(values: Sequence[Expr]) -> Expr:
    """Return a register of four bytes, given as int32, the first one lowest."""
    word: Expr = tirx.const(0, "uint32")
    for place, value in enumerate(values):
        byte = tirx.bitwise_and(tirx.Cast("uint32", value), tirx.const(255, "uint32"))
        word = tirx.bitwise_or(word, tirx.shift_left(byte, tirx.const(8 * place, "uint32")))
    return word
