"""Give a value a name that other blocks may read.

A rewriter that looks up how an operand was made finds the operands of that, which a dataflow block
may hold under a local name. Where another block or a branch reads such a name, it must leave its
own block.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import analysis as relax_analysis

_Names = dict[relax.Var, relax.Var]


def publish_names(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each local variable that another block reads made a plain one.

    It is the same module where there is none. Takes linear time.
    """
    functions = {
        var: _publish(func) if isinstance(func, relax.Function) else func
        for var, func in mod.functions.items()
    }
    if all(func.same_as(mod[var]) for var, func in functions.items()):
        return mod
    return tvm.IRModule(functions, attrs=mod.attrs)


def _publish(func: relax.Function) -> relax.Function:
    public = {
        var: relax.Var(var.name, var.ty)
        for var in _read_elsewhere(func.body)
        if isinstance(var, relax.DataflowVar)
    }
    if not public:
        return func
    body = _renamed(func.body, public)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _read_elsewhere(body: relax.SeqExpr) -> Iterator[relax.Var]:
    """Yield the variables that are read outside the block that binds them."""
    yield from relax_analysis.free_vars(body.body)
    for block in body.blocks:
        own = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            read = relax_analysis.free_vars(binding.value)
            if isinstance(binding.value, relax.If):
                yield from read
                yield from _read_elsewhere(binding.value.true_branch)
                yield from _read_elsewhere(binding.value.false_branch)
            else:
                yield from (var for var in read if var not in own)


def _renamed(body: relax.SeqExpr, names: _Names) -> relax.SeqExpr:
    blocks = [
        type(block)([_renamed_binding(binding, names) for binding in block.bindings])
        for block in body.blocks
    ]
    return relax.SeqExpr(blocks, _substituted(body.body, names), body.span)


def _renamed_binding(binding: relax.Binding, names: _Names) -> relax.Binding:
    var, value = names.get(binding.var, binding.var), binding.value
    if isinstance(value, relax.If):
        arms = [_renamed(arm, names) for arm in (value.true_branch, value.false_branch)]
        value = relax.If(_substituted(value.cond, names), *arms, value.span)
    else:
        value = _substituted(value, names)
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty)
    return relax.VarBinding(var, value)


def _substituted(expr: relax.Expr, names: _Names) -> relax.Expr:
    if isinstance(expr, relax.Var):
        return names.get(expr, expr)
    return tvm_ffi.structural_map(expr, (relax.Var, lambda var: names.get(var, var)))
