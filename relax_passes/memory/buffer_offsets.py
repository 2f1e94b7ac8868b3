"""Let kernels take tensors that start anywhere in their storage, as those cut from an arena do."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import BufferType

# What a kernel is given there is an address: the host can add an offset to it.
_POINTERS = ("cuda", "rocm")


def accept_offsets(mod: tvm.IRModule, kind: str) -> tvm.IRModule:
    """Let every PrimFunc of a module take buffers that start anywhere; see `with_offsets`."""
    functions = {
        var: with_offsets(func, kind) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def with_offsets(func: tirx.PrimFunc, kind: str) -> tirx.PrimFunc:
    """Let a function take buffers that start anywhere in their storage.

    A TIR buffer is matched with a zero element offset unless it declares an offset factor. On a
    GPU, a kernel that adds an offset of any number of elements itself can load no vectors, so the
    host hands over where a buffer begins, as far as it knows addresses; tensors begin at whole
    vectors (`elide_copies`).

    Args:
        func: The function.
        kind: Of the target, such as "llvm" and "cuda".
    """
    given = {
        p: tirx.decl_buffer(p.shape, p.dtype, p.name, offset_factor=1)
        for p in func.params
        if isinstance(p.ty, BufferType)
    }
    if kind not in _POINTERS:
        body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda v: given.get(v, v)))
    elif given:
        begins = [_at_its_begin(own, buffer) for own, buffer in given.items()]
        body = tirx.SeqStmt([*begins, func.body])
    else:
        body = func.body
    params = [given.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def _at_its_begin(own: tirx.Var, given: tirx.Var) -> tirx.Stmt:
    """Declare the buffer that a body uses where the given one begins."""
    first = tirx.BufferLoad(given, [0] * len(given.shape))
    return tirx.DeclBuffer(own, data=tirx.address_of(first))
