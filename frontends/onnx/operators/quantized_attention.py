"""QAttention of com.microsoft: self-attention whose input and weight are quantized."""

from __future__ import annotations

from typing import Any

from frontends.onnx.composed import compose
from frontends.onnx.op import Op
from frontends.onnx.operators.microsoft_attention import refuse_rotation_and_shared_buffer
from frontends.onnx.registry import converter


@converter("QAttention", domain="com.microsoft")
def quantized_attention(op: Op) -> Any:
    """Dequantize input and weight (by tensor or column), then attend as Attention does.

    ONNX Runtime's CPU kernel leaves out the rotation that do_rotary asks for; it is refused here.
    """
    refuse_rotation_and_shared_buffer(op)
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
