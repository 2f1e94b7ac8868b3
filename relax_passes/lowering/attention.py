"""R.nn.attention and R.nn.attention_bias: their masks and bias as `mask_mod` and `score_mod`.

A CPU makes one online-softmax kernel of the computation (`tir_schedules/llvm/attention.py`); other
targets get the scores, their softmax and the weighted sums as kernels of their own.

This runs on graph operators, before the general lowering, because it looks through a transpose of
an operand: a cache whose heads come before its tokens is read as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.lowering.rule import dtype_of
from relax_passes.pass_base import PassContext
from tir_schedules.attention import (
    MaskMod,
    attention,
    masked_scores,
    softmax_of_masked,
    weighted_values,
)
from tir_schedules.attention_variants import all_of, biased, causal, sliding_window


def lower_attentions(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, int]:
    """Replace the attentions of `mod` by calls of their computation; return how many there are."""
    lowering = _Attentions(mod, ctx.machine.kind == "llvm")
    for name, func in mod.functions_items():
        if isinstance(func, relax.Function):
            lowering.builder_.update_func(name, lowering.visit_expr(func))
    return (lowering.builder_.get(), lowering.count) if lowering.count else (mod, 0)


@mutator
class _Attentions(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, one_kernel: bool) -> None:
        super().__init__(mod)
        self.one_kernel = one_kernel
        self.count = 0

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if call.op not in _ATTENTIONS or call.ty.shape is None:
            return call
        self.count += 1
        seen = [self._behind_swap(arg) for arg in call.args[:3]]
        operands = [operand for operand, _ in seen]
        return _emit(
            self.builder_, call, operands, call.args[3:], [s for _, s in seen], self.one_kernel
        )

    def _behind_swap(self, value: relax.Expr) -> tuple[relax.Expr, bool]:
        """Return the operand of a swap of tokens and heads and True, or `value` and False."""
        producer = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if not isinstance(producer, tvm.ir.Call) or producer.op != _PERMUTE:
            return value, False
        axes = producer.attrs.axes
        if axes is None or [int(axis) % 4 for axis in axes] != [0, 2, 1, 3]:
            return value, False
        return producer.args[0], True


def _emit(
    bb: relax.BlockBuilder,
    call: tvm.ir.Call,
    operands: Sequence[relax.Expr],
    bias: Sequence[relax.Expr],
    swapped: Sequence[bool],
    one_kernel: bool,
) -> relax.Expr:
    q, k, v = operands
    scale = None if call.attrs.scale is None else float(call.attrs.scale.value)

    def variant(q: te.Tensor, k: te.Tensor, *bias: te.Tensor) -> dict[str, Any]:
        queries, keys = (t.shape[2 if s else 1] for t, s in zip((q, k), swapped, strict=False))
        score_mod = biased(bias[0]) if bias else None
        return {"score_mod": score_mod, "mask_mod": _mask(call, queries, keys), "scale": scale}

    def whole(q: te.Tensor, k: te.Tensor, v: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        return attention(q, k, v, heads_first=swapped, **variant(q, k, *bias))

    def scores(q: te.Tensor, k: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        return masked_scores(q, k, heads_first=swapped[:2], **variant(q, k, *bias))

    if one_kernel:
        return bb.call_te(whole, q, k, v, *bias, primfunc_name_hint="attention")
    made = bb.emit(bb.call_te(scores, q, k, *bias, primfunc_name_hint="attention_scores"))
    made = bb.emit(bb.call_te(softmax_of_masked, made, primfunc_name_hint="attention_softmax"))
    name = "attention_values"
    return bb.call_te(weighted_values, made, v, dtype_of(call), swapped[2], primfunc_name_hint=name)


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
_PERMUTE = tvm.ir.Op.get("relax.permute_dims")
