"""Attention of any `score_mod` and `mask_mod` as one kernel that never stores the scores."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.attention import STAGE
from tir_schedules.attention_nest import AttentionNest, read_attention
from tir_schedules.blocks import constant, inline_spatial, leaf_blocks, new_schedule, points
from tir_schedules.cuda.attention_kernel import AttentionKernel
from tir_schedules.cuda.attention_tile import choose_attention_tile
from tir_schedules.cuda.threads import name_of
from tir_schedules.machine import Machine
from tir_schedules.roofline import PARTS
from tir_schedules.rule import Decline, Rule

_MOST_BLOCKS = 65535  # along the second and third axis of a grid
# What a thread may take of them in float32: operands in three parts, a mask and a bias.
_REGISTERS = 160


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    nest = read_fused_attention(func)
    if machine.gpu is None:
        raise Decline("is for GPUs whose units are known")
    batch, heads, queries, _, size, columns = (constant(extent) for extent in nest.sizes)
    if max(batch or 1, heads or 1) > _MOST_BLOCKS:
        raise Decline("the grid has no room for so many heads")
    dtype = nest.operand_dtype
    tile = choose_attention_tile(
        *(dtype, points([batch, heads], 1), queries, size, columns, machine.gpu),
        plain=nest.plain_scale is not None,
    )
    if dtype != "float32":
        return AttentionKernel(nest, tile).write(func)
    # nvcc does not know of shared memory that is asked for at the launch. Told nothing, it saved
    # registers for more blocks than there is room for, and spilled (ViT on sm_80); told of all that
    # fit where heads are small, it spilled as well (Swin).
    together = machine.gpu.blocks_together(tile.threads, _REGISTERS, tile.shared_bytes)
    return AttentionKernel(nest, tile, together).write(func).with_attr(PARTS, 3)


def read_fused_attention(func: PrimFunc) -> AttentionNest:
    """Return the attention of a function, the maps around it taken into its expressions.

    Raises:
        Decline: If it holds no attention, or more than maps around it.
    """
    sch = new_schedule(func)
    stages = [block for block in leaf_blocks(sch) if STAGE in sch.get(block).annotations]
    if not stages:
        raise Decline("has no attention")
    inline_spatial(sch, keep=tuple(name_of(sch, block) for block in stages))
    for block in leaf_blocks(sch):
        if STAGE not in sch.get(block).annotations:
            try:
                sch.reverse_compute_inline(block)
            except s_tir.ScheduleError as fault:
                raise Decline("has more than maps around the attention") from fault
    nest, before, after = read_attention(sch.mod["main"])
    if before or after:
        raise Decline("has other stages around the attention")
    return nest


RULE = Rule("attention", _apply, kinds=("cuda",))
