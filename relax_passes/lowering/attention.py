"""R.nn.attention and R.nn.attention_bias: their masks and bias as `mask_mod` and `score_mod`.

The computation becomes one online-softmax kernel (`tir_schedules/llvm/attention.py`,
`tir_schedules/cuda/attention.py`); where the target has none for it, the scores, their softmax and
the weighted sums are kernels of their own.

This runs on graph operators, before the general lowering, because operands are read in place
(`read_in_place.py`): a cache whose heads come before its tokens, and Q, K and V where they are
slices of one merged projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from relax_passes.lowering.read_in_place import InPlace, View, read_in_place
from relax_passes.lowering.rule import dtype_of
from relax_passes.pass_base import PassContext
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from tir_schedules.attention import (
    MaskMod,
    attention,
    masked_scores,
    softmax_of_masked,
    weighted_values,
)
from tir_schedules.attention_variants import all_of, biased, causal, sliding_window
from tir_schedules.blocks import constant, points
from tir_schedules.rule import Decline


def lower_attentions(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, int]:
    """Replace the attentions of `mod` by calls of their computation; return how many there are."""
    lowering = _Attentions(mod, ctx)
    rewrite_functions(lowering, mod)
    return (lowering.builder_.get(), lowering.count) if lowering.count else (mod, 0)


@mutator
class _Attentions(CallRewriter):
    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.ctx = ctx

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if call.op not in _ATTENTIONS or call.ty.shape is None:
            return None
        operands = [read_in_place(self.look_up, x) for x in call.args[:3]]
        obstacle = _obstacle(call, self.ctx)
        if obstacle:
            self.ctx.log.decline("lower_operators/attention", "attention", obstacle)
        return _emit(self.builder_, call, operands, not obstacle)


def _obstacle(call: tvm.ir.Call, ctx: PassContext) -> str:
    """Return why the target has no kernel for an attention, "" where it has one."""
    if ctx.machine.kind == "llvm":
        return ""
    if ctx.machine.gpu is None:
        return "is for processors and GPUs whose units are known"
    from tir_schedules.cuda.attention_tile import choose_attention_tile

    q, _, v = (list(arg.ty.shape.values) for arg in call.args[:3])
    batch, queries, heads, size = (constant(extent) for extent in q)
    width = constant(v[3])
    types = {dtype_of(arg) for arg in call.args[:3]}
    dtype = types.pop() if len(types) == 1 else "several types"
    try:
        choose_attention_tile(
            dtype, points([batch, heads], 1), queries, size, width, ctx.machine.gpu
        )
    except Decline as reason:
        return str(reason)
    return ""


def _emit(
    bb: relax.BlockBuilder, call: tvm.ir.Call, operands: Sequence[InPlace], one_kernel: bool
) -> relax.Expr:
    q, k, v = operands
    bias = call.args[3:]
    scale = None if call.attrs.scale is None else float(call.attrs.scale.value)

    def variant(q: View, k: View, bias: Sequence[te.Tensor]) -> dict[str, Any]:
        score_mod = biased(bias[0]) if bias else None
        mask = _mask(call, q.shape[1], k.shape[1])
        return {"score_mod": score_mod, "mask_mod": mask, "scale": scale}

    def whole(x: te.Tensor, y: te.Tensor, z: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        left, right = q.of(x), k.of(y)
        return attention(left, right, v.of(z), **variant(left, right, bias))

    def scores(x: te.Tensor, y: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        left, right = q.of(x), k.of(y)
        return masked_scores(left, right, **variant(left, right, bias))

    def values(shares: te.Tensor, z: te.Tensor) -> te.Tensor:
        return weighted_values(shares, v.of(z), dtype_of(call))

    if one_kernel:
        parts = [q.source, k.source, v.source, *bias]
        return bb.call_te(whole, *parts, primfunc_name_hint="attention")
    parts = [q.source, k.source, *bias]
    made = bb.emit(bb.call_te(scores, *parts, primfunc_name_hint="attention_scores"))
    made = bb.emit(bb.call_te(softmax_of_masked, made, primfunc_name_hint="attention_softmax"))
    return bb.call_te(values, made, v.source, primfunc_name_hint="attention_values")


def _mask(call: tvm.ir.Call, queries: tirx.Expr, keys: tirx.Expr) -> MaskMod | None:
    """Return the mask of the operator's attributes.

    "TopLeft" aligns the first query with the first key; "BottomRight" puts the queries
    |queries - keys| places later, as the operator documents it. A window of w shows the w keys up
    to a query's position, and as many from there on where there is no causal mask.
    """
    causal_mask, window = call.attrs.causal_mask, call.attrs.window_size
    offset: Any = 0
    masks = []
    if causal_mask == "BottomRight":
        offset = tirx.abs(queries - keys)
    if causal_mask is not None:
        masks.append(causal(offset))
    if window is not None:
        reach = int(window) - 1
        masks.append(sliding_window(reach, reach if causal_mask is None else None, offset))
    return all_of(*masks) if masks else None


_ATTENTIONS = [tvm.ir.Op.get(f"relax.nn.{name}") for name in ("attention", "attention_bias")]
