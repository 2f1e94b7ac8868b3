"""Kernels that no fused model should have: batch norms, and copies of a tensor in its order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, PrimFunc


def idle_kernels(mod: tvm.IRModule) -> list[str]:
    """Return the kernels and operators of a fused module that move bytes and compute nothing.

    A view (`R.reshape` in the graph) is no kernel. An identity and a reshape that became a kernel
    are copies; a batch norm is known by the name that its lowering gives it.
    """
    found: list[str] = []

    def called(call: tvm.ir.Call) -> None:
        name = getattr(call.op, "name", "")
        if name in ("relax.nn.batch_norm", "relax.copy"):
            found.append(name)

    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, called), order="pre")
        elif "batch_norm" in var.name_hint or is_copy(func):
            found.append(var.name_hint)
    return found


def is_copy(func: PrimFunc) -> bool:
    """Tell whether a kernel only stores what it loads, each element at its own place."""
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(func.body, (BufferStore, stores.append))
    if len(stores) != 1 or not isinstance(stores[0].value, TensorLoad):
        return False
    (store,) = stores
    load = store.value
    analyzer = Analyzer()
    if not analyzer.can_prove_equal(_count(load.source.shape), _count(store.buffer.shape)):
        return False
    read, written = (
        _place(load.source.shape, load.indices),
        _place(store.buffer.shape, store.indices),
    )
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append))
    for axis in (axis for block in blocks for axis in block.iter_vars):
        analyzer.bind(axis.var, axis.dom)
    return bool(analyzer.can_prove_equal(read, written))


def _count(shape: Sequence[tirx.Expr]) -> tirx.Expr:
    return math.prod(shape, start=tirx.const(1, "int64"))


def _place(shape: Sequence[tirx.Expr], indices: Sequence[tirx.Expr]) -> tirx.Expr:
    at = tirx.const(0, "int64")
    for size, index in zip(shape, indices, strict=True):
        at = at * size + index
    return at
