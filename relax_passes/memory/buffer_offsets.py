"""Let kernels take tensors that start anywhere in their storage, as those cut from an arena do."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import BufferType

# What a kernel is given there is an address: the host can add an offset to it.
_POINTERS = ("cuda", "rocm")


def accept_offsets(mod: tvm.IRModule, kind: str) -> tvm.IRModule:
    """Let every PrimFunc take buffers that start anywhere in their storage.

    A TIR buffer is matched with a zero element offset unless it declares an offset factor. On a
    GPU, a kernel that adds an offset of any number of elements itself can load no vectors, so the
    host hands over where a buffer begins, as far as it knows addresses; tensors begin at whole
    vectors (`elide_copies`).

    Args:
        mod: The module.
        kind: Of the target, such as "llvm" and "cuda".
    """
    functions = {}
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            given = {
                p: tirx.decl_buffer(p.shape, p.dtype, p.name, offset_factor=1)
                for p in func.params
                if isinstance(p.ty, BufferType)
            }
            params = [given.get(p, p) for p in func.params]
            if kind in _POINTERS:
                begins = [_at_its_begin(own, given[own]) for own in given]
                body = tirx.SeqStmt([*begins, func.body]) if begins else func.body
                func = tirx.PrimFunc(params, body, func.ret_type, func.attrs)
            else:
                func = replace_buffers(func, given, params)
        functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs)


def _at_its_begin(own: tirx.Var, given: tirx.Var) -> tirx.Stmt:
    """Declare the buffer that a body uses where the given one begins."""
    first = tirx.BufferLoad(given, [0] * len(given.shape))
    return tirx.DeclBuffer(own, data=tirx.address_of(first))


def replace_buffers(
    func: tirx.PrimFunc, renamed: dict[tirx.Var, tirx.Var], params: list[tirx.Var]
) -> tirx.PrimFunc:
    """Return `func` with other parameters and each buffer replaced as `renamed` says."""
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda v: renamed.get(v, v)))
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
