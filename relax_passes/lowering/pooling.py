"""Pooling in the blocked NCHW[x]c layout on a CPU; other layouts take the general rules."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.lowering.nan_propagating import lowerings as nan_propagating
from relax_passes.lowering.rule import LoweringRule, default_lowering, is_float32
from relax_passes.pass_base import PassContext


def _is_blocked(call: tvm.ir.Call) -> bool:
    layout = str(call.attrs.layout)
    return (
        layout.startswith("NCHW")
        and layout.endswith("c")
        and str(call.attrs.out_layout) == layout
        and is_float32(call.args[0])
    )


def _pool2d(kind: str, otherwise: LoweringRule) -> LoweringRule:
    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        if not _is_blocked(call):
            return otherwise(bb, call)
        from tir_schedules.llvm.pool import pool2d_nchwc

        attrs = call.attrs
        return bb.call_te(
            pool2d_nchwc,
            call.args[0],
            kind=kind,
            kernel=tuple(int(v) for v in attrs.pool_size),
            strides=tuple(int(v) for v in attrs.strides),
            padding=tuple(int(v) for v in attrs.padding),
            dilation=tuple(int(v) for v in attrs.dilation),
            count_include_pad=bool(attrs.count_include_pad),
            ceil_mode=bool(attrs.ceil_mode),
            primfunc_name_hint=f"{kind}_pool2d",
        )

    return lower


def _adaptive_avg_pool2d(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    size = call.attrs.output_size
    if not _is_blocked(call) or size is None or any(int(v) != 1 for v in size):
        return default_lowering(bb, call)
    from tir_schedules.llvm.pool import global_avg_pool_nchwc

    return bb.call_te(global_avg_pool_nchwc, call.args[0], primfunc_name_hint="global_avg_pool2d")


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for 2-D pools in blocked layout."""
    if ctx.machine.kind != "llvm":
        return {}
    return {
        "relax.nn.max_pool2d": _pool2d("max", nan_propagating(ctx)["relax.nn.max_pool2d"]),
        "relax.nn.avg_pool2d": _pool2d("avg", default_lowering),
        "relax.nn.adaptive_avg_pool2d": _adaptive_avg_pool2d,
    }
