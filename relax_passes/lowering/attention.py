"""R.nn.attention and R.nn.attention_bias: their masks and bias as `mask_mod` and `score_mod`.

A CPU makes one online-softmax kernel of the computation (`tir_schedules/llvm/attention.py`); other
targets get the scores, their softmax and the weighted sums as kernels of their own.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx

from relax_passes.lowering.rule import LoweringRule, dtype_of
from relax_passes.pass_base import PassContext
from tir_schedules.attention import (
    MaskMod,
    attention,
    masked_scores,
    softmax_of_masked,
    weighted_values,
)
from tir_schedules.attention_variants import all_of, biased, causal, sliding_window


def _mask(
    causal_mask: str | None, window: int | None, queries: tirx.Expr, keys: tirx.Expr
) -> MaskMod | None:
    """Return the mask of the operator's attributes.

    "TopLeft" aligns the first query with the first key; "BottomRight" puts the queries
    |queries - keys| places later, as the operator documents it. A window of w shows the w keys up
    to a query's position, and as many from there on where there is no causal mask.
    """
    offset: Any = 0
    masks = []
    if causal_mask == "BottomRight":
        offset = tirx.abs(queries - keys)
    if causal_mask is not None:
        masks.append(causal(offset))
    if window is not None:
        right = window - 1 if causal_mask is None else None
        masks.append(sliding_window(window - 1, right, offset))
    return all_of(*masks) if masks else None


def _lower(bb: relax.BlockBuilder, call: tvm.ir.Call, one_kernel: bool) -> relax.Expr:
    attrs = call.attrs
    causal_mask = None if attrs.causal_mask is None else str(attrs.causal_mask)
    window = None if attrs.window_size is None else int(attrs.window_size)
    scale = None if attrs.scale is None else float(attrs.scale.value)
    q, k, v, *bias = call.args

    def variant(q: te.Tensor, k: te.Tensor, bias: tuple[te.Tensor, ...]) -> dict[str, Any]:
        mask = _mask(causal_mask, window, q.shape[1], k.shape[1])
        score_mod = biased(bias[0]) if bias else None
        return {"score_mod": score_mod, "mask_mod": mask, "scale": scale}

    def whole(q: te.Tensor, k: te.Tensor, v: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        return attention(q, k, v, **variant(q, k, bias))

    def scores(q: te.Tensor, k: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        return masked_scores(q, k, **variant(q, k, bias))

    if one_kernel:
        return bb.call_te(whole, q, k, v, *bias, primfunc_name_hint="attention")
    made = bb.emit(bb.call_te(scores, q, k, *bias, primfunc_name_hint="attention_scores"))
    made = bb.emit(bb.call_te(softmax_of_masked, made, primfunc_name_hint="attention_softmax"))
    name = "attention_values"
    return bb.call_te(weighted_values, made, v, dtype_of(call), primfunc_name_hint=name)


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules of attention: one kernel on a CPU, three on other targets."""
    one_kernel = ctx.machine.kind == "llvm"

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        return _lower(bb, call, one_kernel)

    return {"relax.nn.attention": lower, "relax.nn.attention_bias": lower}
