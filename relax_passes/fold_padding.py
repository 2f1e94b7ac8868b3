"""Fold a zero border into the convolution that reads it.

conv(pad(x, before, after), padding=(b, a)) = conv(x, padding=(b + before, a + after))

A convolution adds its own border to just the rows a task reads, while they are in the first-level
cache; a border of its own is a copy of the whole image. Exporters of models in the TensorFlow
style ("SAME" padding that is uneven, as in MobileNet and EfficientNet) write one in front of each
convolution with a stride.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

_PAD = tvm.ir.Op.get("relax.nn.pad")
_CONVOLUTIONS = {
    f"relax.nn.conv{len(axes)}d": (relax_conv, f"NC{axes}")
    for axes, relax_conv in (
        ("W", relax.op.nn.conv1d),
        ("HW", relax.op.nn.conv2d),
        ("DHW", relax.op.nn.conv3d),
    )
}


@graph_pass(name="fold_padding", phase="rewrite")
def fold_padding(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Let convolutions add the zero borders that separate operators add in front of them."""
    rewriter = _FoldPadding(mod)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("fold_padding", f"folded {rewriter.count} zero borders into convolutions")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _FoldPadding(CallRewriter):
    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _CONVOLUTIONS:
            return None
        convolution, layout = _CONVOLUTIONS[call.op.name]
        attrs = call.attrs
        border = self.look_up(call.args[0])
        if str(attrs.data_layout) != layout or not _is_zero_border(border):
            return None
        before, after = _spatial_widths(border)
        own = [int(width) for width in attrs.padding]
        return convolution(
            border.args[0],
            call.args[1],
            strides=list(attrs.strides),
            padding=[have + more for have, more in zip(own, before + after, strict=True)],
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=None if attrs.out_dtype is None else str(attrs.out_dtype),
        )


def _is_zero_border(value: relax.Expr) -> bool:
    """Tell whether `value` adds zeros around the image, and nothing to batch or channels."""
    if not isinstance(value, tvm.ir.Call) or value.op != _PAD:
        return False
    widths = [int(width) for width in value.attrs.pad_width]
    return (
        str(value.attrs.pad_mode) == "constant"
        and float(value.attrs.pad_value) == 0.0
        and not any(widths[:4])
        and min(widths) >= 0
    )


def _spatial_widths(border: tvm.ir.Call) -> tuple[list[int], list[int]]:
    """Return the widths before and after each spatial axis."""
    widths = [int(width) for width in border.attrs.pad_width][4:]
    return widths[::2], widths[1::2]
