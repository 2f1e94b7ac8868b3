"""Attention of any `score_mod` and `mask_mod` as one online-softmax kernel."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir
from tvm.ir import Range, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Buffer, BufferRegion, BufferStore, PrimFunc, SeqStmt, Stmt

from tir_schedules.attention_nest import AttentionNest, read_attention
from tir_schedules.blocks import constant, new_schedule, points
from tir_schedules.llvm.annotated_loops import PARALLEL_MULTIPLY_ADDS
from tir_schedules.llvm.attention_kernel import attention_kernel
from tir_schedules.llvm.attention_step import attention_step, is_step
from tir_schedules.llvm.attention_tile import choose_attention_tile
from tir_schedules.llvm.register_tile import finish_stages
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    nest, before, after = read_attention(func)
    batch, heads, queries, keys, size, width = (constant(extent) for extent in nest.sizes)
    work = points([batch, heads, queries, keys]) * points([size, width])
    parallel = machine.cores > 1 and work >= PARALLEL_MULTIPLY_ADDS
    if is_step(nest, machine):
        loops = attention_step(nest, machine, parallel)
    else:
        sizes = (queries, keys, int(width or 1), points([batch, heads]))
        loops = attention_kernel(nest, choose_attention_tile(machine, *sizes), parallel)
    kernel = _as_block(nest, loops)
    statements = [*before, kernel, *after]
    root = func.body.block
    used = _buffers(statements)
    kept = [buffer for buffer in root.alloc_buffers if buffer in used]
    body = statements[0] if len(statements) == 1 else SeqStmt(statements)
    block = SBlock([], [], [], root.name_hint, body, alloc_buffers=kept)
    sch = new_schedule(func.with_body(SBlockRealize([], True, block)))
    finish_stages(sch, machine)
    return sch


def _as_block(nest: AttentionNest, body: Stmt) -> Stmt:
    """Return the kernel as an opaque block that reads and writes whole tensors."""
    templates = (nest.query, nest.key, nest.value, nest.score, nest.visible)
    read = _buffers([template.value for template in templates if template is not None])
    reads = [_whole(buffer) for buffer in read if not buffer.same_as(nest.raw)]
    block = SBlock([], reads, [_whole(nest.out)], "attention", body)
    return SBlockRealize([], True, block)


def _buffers(nodes: Sequence[object]) -> list[Buffer]:
    """Return the buffers that statements or expressions access, each once."""
    found: dict[Buffer, None] = {}
    for node in nodes:
        tvm_ffi.structural_walk(
            node,
            [
                (TensorLoad, lambda load: found.setdefault(load.source)),
                (BufferStore, lambda store: found.setdefault(store.buffer)),
            ],
            order="pre",
        )
    return list(found)


def _whole(buffer: Buffer) -> BufferRegion:
    return BufferRegion(buffer, [Range(0, extent) for extent in buffer.shape])


RULE = Rule("attention", _schedule)
