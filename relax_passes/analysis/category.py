"""Fusion categories, read from the loop nests, so that a new operator needs no table entry.

The six categories are those of the TVM paper (Chen et al., OSDI 2018, section 3), refined by
"broadcast" as in DNNFusion's one-to-many mapping type (Niu et al., PLDI 2021). They are ordered: a
function of several blocks has the greatest category of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IntImm, IterVar, PrimFunc, Var, While

from tir_schedules.variables import used_in


class Category(IntEnum):
    """How a kernel's output elements depend on its input elements."""

    ELEMENTWISE = 0  # out[i] reads in[i]
    BROADCAST = 1  # out[i, j] reads in[j]: a subsequence of the output's axes, in order
    INJECTIVE = 2  # out[i] reads in[f(i)]: transpose, slice, pad, gather
    REDUCTION = 3  # out[i] reads a range of in: sum, softmax, layer norm, dot product
    COMPLEX_OUT_FUSABLE = 4  # rows meet other rows along a reduced axis: matmul, convolution, pool
    OPAQUE = 5  # scatter, extern calls, while loops: nothing may be fused


@dataclass(frozen=True)
class Access:
    """One read of a block: the buffer, its index expressions, and the category they amount to."""

    buffer: str
    indices: str
    category: Category


@dataclass(frozen=True)
class Verdict:
    """A function's category and the access map behind it; `anchor` names the deciding block."""

    category: Category
    anchor: str
    accesses: tuple[Access, ...]


def categorize(func: PrimFunc) -> Verdict:
    """Return the category of an unscheduled PrimFunc, with the accesses that justify it."""
    blocks = compute_blocks(func)
    if not blocks:
        return Verdict(Category.OPAQUE, "", ())
    verdicts = [_categorize_block(block) for block in blocks]
    if _has_type(func, While) or _is_extern(func):
        return Verdict(Category.OPAQUE, blocks[0].name_hint, verdicts[0].accesses)
    return max(verdicts, key=lambda verdict: verdict.category)


def _is_extern(func: PrimFunc) -> bool:
    """Tell whether its statements were written by hand (`te.extern`), which nothing fuses with.

    They take buffers at any offset. Where a tensor is empty nothing else gives them away.
    """
    buffers = (param for param in func.params if hasattr(param, "shape"))
    return any(not isinstance(buffer.elem_offset, IntImm) for buffer in buffers)


def compute_blocks(func: PrimFunc) -> list[SBlock]:
    """Return the compute blocks of `func` in order, without the root block."""
    found: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, found.append), order="pre")
    return [block for block in found if len(block.iter_vars) or block.name_hint != "root"]


def _has_type(func: PrimFunc, node_type: type) -> bool:
    found: list[object] = []
    tvm_ffi.structural_walk(func.body, (node_type, found.append))
    return bool(found)


def _categorize_block(block: SBlock) -> Verdict:
    stores: list[BufferStore] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(block.body, [(BufferStore, stores.append), (TensorLoad, loads.append)])
    name = block.name_hint
    if not stores:  # an extern call writes through pointers
        return Verdict(Category.OPAQUE, name, ())
    spatial = [iv.var for iv in block.iter_vars if int(iv.iter_type) == IterVar.DataPar]
    own = set(spatial)
    reduced = {iv.var for iv in block.iter_vars if int(iv.iter_type) == IterVar.CommReduce}
    written = {store.buffer for store in stores}
    targets = [store.indices for store in stores]
    if any(not _is_own_point(indices, spatial) for indices in targets):
        return Verdict(Category.OPAQUE, name, ())

    accesses = []
    rows: set[frozenset[Var]] = set()  # the axes that name a row of what is read along another
    windows = False
    for load in loads:
        if load.source in written:
            continue  # the accumulator of a reduction
        used = [set(used_in(index)) for index in load.indices]
        along = set().union(*used) & reduced
        if along:
            rows.add(frozenset(set().union(*used) & own))
            windows |= any(index & reduced and index & own for index in used)
        category = Category.REDUCTION if along else _read_category(load.indices, spatial)
        accesses.append(
            Access(load.source.name, ", ".join(str(index) for index in load.indices), category)
        )
    if reduced:
        # Rows that meet other rows along a reduced axis, or a sliding window, are read many times.
        # A dot product reads each element once, as a sum does.
        complex_out = len(rows) >= 2 or windows
        kind = Category.COMPLEX_OUT_FUSABLE if complex_out else Category.REDUCTION
    else:
        kind = max((access.category for access in accesses), default=Category.INJECTIVE)
        if not accesses:  # a constant fill writes each point once
            kind = Category.ELEMENTWISE
    return Verdict(kind, name, tuple(accesses))


def _is_own_point(indices: list[object], spatial: list[Var]) -> bool:
    """Tell whether a store writes each point of the block's domain exactly once."""
    variables = [index for index in indices if isinstance(index, Var)]
    constant = [index for index in indices if not isinstance(index, Var)]
    if any(hasattr(index, "value") is False for index in constant):
        return False
    ids = [v for v in variables if any(v.same_as(s) for s in spatial)]
    return len(ids) == len(variables) and len({id(v) for v in ids}) == len(ids)


def _read_category(indices: list[object], spatial: list[Var]) -> Category:
    positions = []
    for index in indices:
        if isinstance(index, Var):
            place = [k for k, s in enumerate(spatial) if index.same_as(s)]
            if not place:
                return Category.INJECTIVE
            positions.append(place[0])
        elif hasattr(index, "value"):
            continue  # a constant index: a size-1 axis of a broadcast operand
        else:
            return Category.INJECTIVE
    if positions == list(range(len(spatial))) and len(indices) == len(spatial):
        return Category.ELEMENTWISE
    if all(a < b for a, b in zip(positions, positions[1:], strict=False)):
        return Category.BROADCAST
    return Category.INJECTIVE
