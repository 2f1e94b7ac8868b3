"""Lower graph operators to calls of TIR functions.

After this pass `main` holds only `R.call_tir`, R.reshape views, tuples, shape definitions
(`R.match_cast`) and a few calls into the runtime.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.lowering import (
    boolean,
    contiguous_parts,
    convolution,
    double_precision,
    nan_propagating,
    normalization,
    pooling,
    views,
    zero_constants,
)
from relax_passes.lowering.attention import lower_attentions
from relax_passes.lowering.convolution import lower_sliced_convolutions
from relax_passes.lowering.matrix_product import lower_matrix_products
from relax_passes.lowering.rule import LoweringRule
from relax_passes.pass_base import PassContext, graph_pass

# Calls that need no kernel: views, and what the virtual machine does itself.
RUNTIME = frozenset(
    {
        "relax.call_tir",
        "relax.call_tir_inplace",
        "relax.call_pure_packed",
        "relax.call_dps_packed",
        "relax.reshape",
        "relax.shape_of",
        "relax.tensor_to_shape",
        "relax.null_value",
        "relax.assert_op",
    }
)


# TVM lowers these by a pass of their own.
_SORTING = frozenset(f"relax.{name}" for name in ("sort", "argsort", "topk", "cumsum", "cumprod"))


class NotLowered(ValueError):
    """An operator that no lowering rule takes."""


def lowering_rules(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return our own rules by operator name; TVM's hold for every other operator."""
    rules: dict[str, LoweringRule] = {}
    families = (
        views, boolean, nan_propagating, convolution, pooling, normalization, double_precision,
        contiguous_parts, zero_constants,
    )  # fmt: skip
    for family in families:
        rules.update(family.lowerings(ctx))
    return rules


@graph_pass(name="lower_operators", phase="lower")
def lower_operators(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Lower every operator to a TIR function, except views.

    Raises:
        NotLowered: If an operator has no lowering rule for its operands.
    """
    if not _remaining(mod):
        return mod, False
    count = len(mod.get_global_vars())
    mod, attentions = lower_attentions(mod, ctx)
    if attentions:
        ctx.log.fire(
            "lower_attention", f"{attentions} attentions became calls of their computation"
        )
    mod = lower_sliced_convolutions(lower_matrix_products(mod, ctx), ctx)
    if _SORTING & set(_remaining(mod)):
        with ctx.target:
            mod = relax.backend.DispatchSortScan()(mod)
    legalize = relax.transform.LegalizeOps(lowering_rules(ctx), skip_ops=["relax.reshape"])
    try:
        with ctx.target:
            mod = legalize(mod)
    except RuntimeError as fault:  # how TVM's rules say that they take no such operands
        lines = str(fault).strip().splitlines()
        raise NotLowered(lines[-1] if lines else repr(fault)) from fault
    left = _remaining(mod)
    if left:
        name, shown = next(iter(left.items()))
        raise NotLowered(f"operator {name} cannot be lowered: {shown}")
    made = len(mod.get_global_vars()) - count
    ctx.log.fire("lower_operators", f"lowered the graph to {made} distinct TIR functions")
    return mod, True


def _remaining(mod: tvm.IRModule) -> dict[str, str]:
    """Return the operators still to be lowered, each with the types of one call of it."""
    found: dict[str, str] = {}

    def visit(call: tvm.ir.Call) -> None:
        if not isinstance(call.op, tvm.ir.Op) or not call.op.name.startswith("relax."):
            return
        name = call.op.name
        if name in RUNTIME or name.startswith(("relax.builtin.", "relax.memory.", "relax.vm.")):
            return
        if name not in found:
            found[name] = ", ".join(str(arg.ty) for arg in call.args)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    return found
