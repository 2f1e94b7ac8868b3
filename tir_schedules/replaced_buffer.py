"""A buffer that takes another's place in a scheduled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import Buffer, BufferRegion, BufferStore, Expr, PrimFunc

Place = Callable[[Sequence[Expr]], Sequence[Expr]]


def replace_buffer(func: PrimFunc, old: Buffer, new: Buffer, place: Place = list) -> PrimFunc:
    """Return the function with `new` wherever it used the temporary buffer `old`.

    Args:
        func: A function of blocks.
        old: A buffer that a block of it allocates.
        new: A parameter, or a buffer that is allocated where `old` was.
        place: Indices into `new` of an element by its indices in `old`.
    """
    is_param = any(new.same_as(param) for param in func.params)

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(new, place(node.indices)) if node.source.same_as(old) else node

    def store(node: BufferStore) -> tirx.Stmt:
        if not node.buffer.same_as(old):
            return node
        return BufferStore(new, node.value, place(node.indices))

    def region(node: BufferRegion) -> BufferRegion:
        if not node.source.same_as(old):
            return node
        starts = place([axis.min for axis in node.region])
        sizes = [axis.extent for axis in node.region]
        return BufferRegion(new, list(map(Range.from_min_extent, starts, sizes)))

    def held(buffers: Sequence[Buffer]) -> list[Buffer]:
        kept = [new if buffer.same_as(old) else buffer for buffer in buffers]
        return [buffer for buffer in kept if not (is_param and buffer.same_as(new))]

    def block(node: SBlock) -> SBlock:
        return SBlock(
            node.iter_vars, [region(r) for r in node.reads], [region(w) for w in node.writes],
            node.name_hint, node.body, node.init,
            held(node.alloc_buffers), node.match_buffers, node.annotations,
        )  # fmt: skip

    changes = [(TensorLoad, load), (BufferStore, store), (SBlock, block)]
    return func.with_body(tvm_ffi.structural_map(func.body, changes))


def same_type(a: Buffer, b: Buffer) -> bool:
    """Tell whether two buffers have one shape and dtype."""
    return bool(tvm_ffi.structural_equal(a.shape, b.shape) and str(a.dtype) == str(b.dtype))
