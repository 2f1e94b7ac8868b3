"""Read elements at int64 places where indices come from an int32 tensor: x[i[j]] = x[int64(i[j])].

Inlining puts the index expression of a reader in place of the int64 loop variable of what it
reads. TVM does so without a conversion; a place that is then computed from it, such as the
reflected one of a padding, would mix int32 with int64, which no later pass takes.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad

from relax_passes.pass_base import PassContext, graph_pass

NAME = "widen_indices"


@graph_pass(name=NAME, phase="lower")
def widen_indices(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Convert indices that kernels read from int32 tensors to int64, as all other places are."""
    functions = {
        var: _widened(func) if isinstance(func, tirx.PrimFunc) and _mixes(func) else func
        for var, func in mod.functions.items()
    }
    changed = sum(not func.same_as(mod[var]) for var, func in functions.items())
    if not changed:
        return mod, False
    ctx.log.fire(NAME, f"int32 indices of {changed} functions are read as int64")
    return tvm.IRModule(functions, attrs=mod.attrs), True


def _mixes(func: tirx.PrimFunc) -> bool:
    """Tell whether an element is read or written at a narrower place than the sizes are."""
    found = False

    def look(access: TensorLoad | tirx.BufferStore) -> None:
        nonlocal found
        found = found or not all(
            a.same_as(b) for a, b in zip(_wide(access), access.indices, strict=True)
        )

    tvm_ffi.structural_walk(func.body, ((TensorLoad, tirx.BufferStore), look))
    return found


def _widened(func: tirx.PrimFunc) -> tirx.PrimFunc:
    def load(node: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(node.source, _wide(node))

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(node.buffer, node.value, _wide(node))

    def region(node: Range) -> Range:
        if str(node.extent.ty.dtype) != "int64" or str(node.min.ty.dtype) == "int64":
            return node
        return Range.from_min_extent(node.min.astype("int64"), node.extent)

    callbacks = [(TensorLoad, load), (tirx.BufferStore, store), (Range, region)]
    return func.with_body(tvm_ffi.structural_map(func.body, callbacks))


def _wide(access: TensorLoad | tirx.BufferStore) -> list[tirx.Expr]:
    """Return the place of an access, int64 where the tensor's sizes are."""
    tensor = access.source if isinstance(access, TensorLoad) else access.buffer
    return [
        place.astype("int64")
        if str(size.ty.dtype) == "int64" and str(place.ty.dtype) != "int64"
        else place
        for place, size in zip(access.indices, tensor.shape, strict=True)
    ]
