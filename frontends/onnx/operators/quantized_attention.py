"""QAttention of com.microsoft: self-attention whose input and weight are quantized."""

from __future__ import annotations

from typing import Any

from frontends.onnx.composed import compose
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


@converter("QAttention", domain="com.microsoft")
def quantized_attention(op: Op) -> Any:
    """Dequantize input and weight (by tensor or column), then attend as Attention does."""
    if op.attr("do_rotary", 0) or op.attr("past_present_share_buffer", 0):
        raise op.unsupported("do_rotary and past_present_share_buffer")
    return compose(
        op,
        """(x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past) => (y, present) {
            input = DequantizeLinear(x, x_scale, x_zero)
            weight = DequantizeLinear <axis = 1>(w, w_scale, w_zero)
            y, present = com.microsoft.Attention <
                num_heads: int = @num_heads, unidirectional: int = @unidirectional,
                scale: float = @scale, mask_filter_value: float = @mask_filter_value
            >(input, weight, bias, mask, past)
        }""",
    )
