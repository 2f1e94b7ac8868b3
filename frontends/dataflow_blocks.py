"""Put the bindings between control flow into dataflow blocks, where passes may reorder them."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import analysis as relax_analysis


def to_dataflow(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each run of bindings without `If` as one dataflow block.

    Every function is a straight line of pure bindings; branches of an `If` are left as they are.
    TVM's ConvertToDataflow would also drop checks of sizes (`relax_passes.canonicalize_bindings`).
    """
    functions = {
        var: _convert(func) if isinstance(func, relax.Function) else func
        for var, func in module.functions.items()
    }
    # Expressions that were written anew have no types yet.
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


def _convert(func: relax.Function) -> relax.Function:
    segments: list[list[relax.Binding]] = [[]]
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                segments += [[binding], []]
            else:
                segments[-1].append(binding)
    home = {b.var: number for number, segment in enumerate(segments) for b in segment}
    leaving = set(relax_analysis.free_vars(func.body.body))
    for number, segment in enumerate(segments) if len(segments) > 1 else ():
        for binding in segment:
            used = relax_analysis.free_vars(binding.value)
            leaving.update(var for var in used if home.get(var, number) != number)
    local = {
        binding.var: relax.DataflowVar(binding.var.name, binding.var.ty)
        for number, segment in enumerate(segments)
        if number % 2 == 0
        for binding in segment
        if binding.var not in leaving
    }

    def rename(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return local.get(expr, expr)
        return tvm_ffi.structural_map(expr, (relax.Var, lambda v: local.get(v, v)))

    blocks: list[relax.BindingBlock] = []
    for number, segment in enumerate(segments):
        written: list[relax.Binding] = []
        for binding in segment:
            var, value = local.get(binding.var, binding.var), rename(binding.value)
            if isinstance(binding, relax.MatchCast):
                written.append(relax.MatchCast(var, value, binding.ty))
            else:
                written.append(relax.VarBinding(var, value))
        if written:
            kind = relax.BindingBlock if number % 2 else relax.DataflowBlock
            blocks.append(kind(written))
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
