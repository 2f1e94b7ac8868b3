"""Let kernels take tensors that start anywhere in their storage, as those cut from an arena do."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.buffer import BufferType


def accept_offsets(mod: tvm.IRModule) -> tvm.IRModule:
    """Let every PrimFunc take buffers that start anywhere in their storage.

    A TIR buffer is matched with a zero element offset unless it declares an offset factor.
    """
    functions = {}
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            renamed = {
                p: tirx.decl_buffer(p.shape, p.dtype, p.name, offset_factor=1)
                for p in func.params
                if isinstance(p.ty, BufferType)
            }
            func = replace_buffers(func, renamed, [renamed.get(p, p) for p in func.params])
        functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs)


def replace_buffers(
    func: tirx.PrimFunc, renamed: dict[tirx.Var, tirx.Var], params: list[tirx.Var]
) -> tirx.PrimFunc:
    """Return `func` with other parameters and each buffer replaced as `renamed` says."""
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda v: renamed.get(v, v)))
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
