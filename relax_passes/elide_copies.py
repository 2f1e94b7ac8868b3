"""Concatenations, pads, splits and slices without a kernel of their own.

A concatenation of runs of bytes stays a graph operator, `R.concat`: `plan_memory` gives it one
buffer, and each kernel that makes an operand writes there. A pad is a concatenation with filled
ends. A slice becomes `R.memory.view`: its readers are handed bytes amid its source.

What fusion would compute inside the operator's kernel is better left to fusion. With p bytes of
operands that are stored in any case and u bytes of others, all placed into the buffer, and c(u) the
kernels that write the others, the traffic saved is

    2 p - (c(u) - 1) C     or     -2 u - c(u) C    where a map that reads the result would be fused,

C being what starting a kernel is worth. Where this is not below zero, the operator is elided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, topi

from relax_passes.analysis.category import Category
from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.tensor_bytes import bytes_of
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.fusion_groups import callee_of
from relax_passes.lowering.contiguous_parts import (
    JOINED_AXIS,
    PAD_VALUE,
    PADDED_ENDS,
    SCATTERED,
    SLICE_OFFSETS,
)
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.stored_tensors import StoredTensors

NAME = "elide_copies"
_CALL_BYTES = 8192  # 0.4 us of the virtual machine, at 20 GB/s
_GPU_ALIGNMENT = 64  # bytes; on LLVM vectors are loaded from wherever a buffer begins


@graph_pass(name=NAME, phase="fuse")
def elide_copies(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Write parts of a concatenation or pad into it, read slices where they are."""
    builder = relax.BlockBuilder(mod)
    counts = _Counts()
    for var, func in mod.functions.items():
        if not isinstance(func, relax.Function):
            continue
        blocks = [
            _Block(block, mod, ctx, builder, counts).rewrite()
            if isinstance(block, relax.DataflowBlock)
            else block
            for block in func.body.blocks
        ]
        if any(new is not old for new, old in zip(blocks, func.body.blocks, strict=True)):
            body = relax.SeqExpr(blocks, func.body.body)
            changed = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            builder.update_func(var, builder.normalize(changed))
    earlier = ctx.log.metrics.get("copies", {"elided": 0})["elided"]
    ctx.log.metrics["copies"] = {"elided": earlier + counts.elided, "left": counts.left}
    if not counts.elided:
        return mod, False
    ctx.log.fire(NAME, f"{counts.elided} copies of {counts.bytes} bytes; {counts.left} are left")
    return remove_dead_bindings(builder.finalize()), True


@dataclass
class _Counts:
    elided: int = 0
    left: int = 0
    bytes: int = 0


@dataclass
class _Parts:
    """Operands of a concatenation: bytes of each, those stored in any case, and the others."""

    sizes: list[int]
    stored: list[int]
    others: list[int]


class _Block:
    """One dataflow block, rewritten binding by binding."""

    def __init__(
        self,
        block: relax.DataflowBlock,
        mod: tvm.IRModule,
        ctx: PassContext,
        builder: relax.BlockBuilder,
        counts: _Counts,
    ) -> None:
        self._block, self._mod, self._ctx, self._builder = block, mod, ctx, builder
        self._counts = counts
        self._stored = StoredTensors(block, mod)
        self._views: dict[relax.Var, list[relax.Expr]] = {}  # of each split that is elided
        self._bindings: list[relax.Binding] = []

    def rewrite(self) -> relax.DataflowBlock:
        """Return the block without the kernels that are elided, itself if none is."""
        before = self._counts.elided
        for binding in self._block.bindings:
            if not self._elide(binding):
                self._bindings.append(binding)
        if self._counts.elided == before:
            return self._block
        return relax.DataflowBlock(self._bindings)

    def _elide(self, binding: relax.Binding) -> bool:
        """Emit what takes the place of a binding; tell whether anything does."""
        var, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self._views:
            self._bind(var, self._views[value.tuple_value][value.index])
            return True
        callee = callee_of(binding)
        attrs = self._mod[callee].attrs if callee is not None else None
        if not attrs:
            return False
        if SCATTERED in attrs:
            self._leave(var, str(attrs[SCATTERED]))
        elif SLICE_OFFSETS in attrs:
            return self._elide_slices(var, value, [int(n) for n in attrs[SLICE_OFFSETS]])
        elif JOINED_AXIS in attrs:
            return self._elide_concat(var, list(value.args[1].fields), int(attrs[JOINED_AXIS]))
        elif PADDED_ENDS in attrs:
            axis, before, behind = (int(n) for n in attrs[PADDED_ENDS])
            return self._elide_pad(var, value, axis, (before, behind))
        return False

    def _elide_concat(self, var: relax.Var, operands: list[relax.Expr], axis: int) -> bool:
        """Keep a concatenation for the planner."""
        parts = self._parts(operands)
        reason = self._refusal(var, parts)
        if reason is not None:
            return self._leave(var, reason)
        self._take(var, relax.op.concat(operands, axis), sum(parts.stored))
        return True

    def _elide_pad(
        self, var: relax.Var, call: relax.Call, axis: int, ends: tuple[int, int]
    ) -> bool:
        """Make a pad the concatenation of its source with an end, or two, of one value."""
        parts = self._parts(list(call.args[1].fields))
        shape, dtype = [int(dim) for dim in var.ty.shape], str(var.ty.dtype)
        fills = [[*shape[:axis], size, *shape[axis + 1 :]] for size in ends]
        before, behind = (math.prod(fill) * _itemsize(dtype) for fill in fills)
        parts.sizes[:] = [before, *parts.sizes, behind]
        parts.others += [size for size in (before, behind) if size]
        reason = self._refusal(var, parts)
        if reason is not None:
            return self._leave(var, reason)
        value = float(self._mod[call.args[0]].attrs[PAD_VALUE])
        borders = [
            [self._filled(f"{var.name}_border", fill, dtype, value)] if size else []
            for fill, size in zip(fills, ends, strict=True)
        ]
        operands = [*borders[0], *call.args[1].fields, *borders[1]]
        self._take(var, relax.op.concat(operands, axis), sum(parts.stored))
        return True

    def _filled(self, name: str, shape: list[int], dtype: str, value: float) -> relax.Var:
        made = self._builder.normalize(self._builder.call_te(topi.full, shape, dtype, value))
        border = relax.DataflowVar(name, made.ty)
        self._bindings.append(relax.VarBinding(border, made))
        return border

    def _parts(self, operands: Sequence[relax.Expr]) -> _Parts:
        parts = _Parts([bytes_of(operand) for operand in operands], [], [])
        for number, (operand, size) in enumerate(zip(operands, parts.sizes, strict=True)):
            twice = any(operand.same_as(other) for other in operands[:number])
            mine = isinstance(operand, relax.DataflowVar) and not twice
            (parts.stored if mine and self._stored.is_stored(operand) else parts.others).append(
                size
            )
        return parts

    def _refusal(self, var: relax.Var, parts: _Parts) -> str | None:
        """Return why a concatenation keeps its kernel, None if it does not."""
        if not parts.stored:
            return "no operand is the stored result of a kernel"
        if self._saved(var, parts) < 0:
            return "fused with what makes its operands, it moves fewer bytes"
        offsets = [sum(parts.sizes[:k]) for k in range(len(parts.sizes))]
        return self._misaligned(offsets)

    def _saved(self, var: relax.Var, parts: _Parts) -> int:
        """Return the traffic saved, in bytes, as above."""
        readers = self._stored.readers.get(var, ())
        if any(self._stored.category(reader) <= Category.INJECTIVE for reader in readers):
            return -2 * sum(parts.others) - len(parts.others) * _CALL_BYTES
        return 2 * sum(parts.stored) - (len(parts.others) - 1) * _CALL_BYTES

    def _elide_slices(self, var: relax.Var, call: relax.Call, elements: list[int]) -> bool:
        """Make slices views of their source, those of a split one by one."""
        (source,) = call.args[1].fields
        types = list(var.ty.fields) if isinstance(var.ty, tvm.ir.TupleType) else [var.ty]
        offsets = [n * _itemsize(str(source.ty.dtype)) for n in elements]
        reason = self._misaligned(offsets)
        if not self._only_kernels_read(var):
            reason = "it is read by more than kernels, which may not mind where it begins"
        elif not self._stored.is_stored(source, param=True):
            reason = "fused with what makes its source, it moves fewer bytes"
        if reason is not None:
            return self._leave(var, reason)
        views = [
            self._builder.normalize(relax.op.memory.view(source, ty.shape, str(ty.dtype), offset))
            for ty, offset in zip(types, offsets, strict=True)
        ]
        size = sum(map(bytes_of, views))
        if isinstance(var.ty, tvm.ir.TupleType):
            self._views[var] = views
            self._count(size)
        else:
            self._take(var, views[0], size)
        return True

    def _only_kernels_read(self, var: relax.Var) -> bool:
        """Tell whether kernels alone read a value, or the parts or views of it."""
        if not isinstance(var, relax.DataflowVar):
            return False
        tuple_ = isinstance(var.ty, tvm.ir.TupleType)
        for reader in self._stored.readers.get(var, ()):
            part = tuple_ and isinstance(reader.value, relax.TupleGetItem)
            if part or operator_name(reader.value) == "reshape":
                if not self._only_kernels_read(reader.var):
                    return False
            elif tuple_ or callee_of(reader) is None:
                return False
        return True

    def _misaligned(self, offsets: Sequence[int]) -> str | None:
        """Return why parts at these offsets cannot be handed to kernels, None if they can."""
        if str(self._ctx.target.kind.name) == "llvm":
            return None
        odd = [offset for offset in offsets if offset % _GPU_ALIGNMENT]
        return f"a part would begin at byte {odd[0]}, not a multiple of 64" if odd else None

    def _leave(self, var: relax.Var, reason: str) -> bool:
        self._counts.left += 1
        self._ctx.log.decline(NAME, var.name, reason)
        return False

    def _take(self, var: relax.Var, value: relax.Expr, size: int) -> None:
        self._count(size)
        self._bind(var, value)

    def _count(self, size: int) -> None:
        self._counts.elided += 1
        self._counts.bytes += size

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        value = self._builder.normalize(value)
        self._stored.bind(var, value)
        self._bindings.append(relax.VarBinding(var, value))


def _itemsize(dtype: str) -> int:
    return int(tvm.runtime.DataType(dtype).itemsize)
