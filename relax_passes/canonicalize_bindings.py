"""Remove bindings that only rename: aliases, elements of tuples just made, casts to the same type.

TVM's pass of this name also takes a `match_cast` to a known symbol as proof that the symbol has the
other size, and drops it; with it goes the check at run time and the type that later operators need.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

Names = dict[relax.Expr, relax.Expr]


def canonicalize_bindings(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module without trivial bindings in the blocks of its functions.

    It is the same module where there are none.
    """
    functions = {
        var: _canonicalize(func) if isinstance(func, relax.Function) else func
        for var, func in mod.functions.items()
    }
    if all(func.same_as(mod[var]) for var, func in functions.items()):
        return mod
    # Expressions that were written anew have no types yet.
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))


def _canonicalize(func: relax.Function) -> relax.Function:
    renamed: Names = {}
    promoted: Names = {}  # a block's result that is computed under a local name takes its place
    tuples: dict[relax.Expr, relax.Tuple] = {}
    blocks: list[tuple[type[relax.BindingBlock], list[relax.Binding]]] = []
    for block in func.body.blocks:
        kept: list[relax.Binding] = []
        own = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            value, var = replace_variables(binding.value, renamed), binding.var
            original = _original(binding, value, tuples)
            if isinstance(original, relax.DataflowVar) and original not in own:
                # An element of a tuple that another block made: there it has a local name.
                original = promoted.get(original)
            leaves_block = isinstance(original, relax.DataflowVar) and not isinstance(
                var, relax.DataflowVar
            )
            if original is None:
                kept.append(rebind(binding, var, value))
            elif not leaves_block:
                renamed[var] = original
            elif original in promoted:
                kept.append(rebind(binding, var, original))
            else:
                promoted[original] = var
            if isinstance(value, relax.Tuple):
                tuples[var] = value
        blocks.append((type(block), kept))
    if not renamed and not promoted:
        return func
    written = [
        kind(
            [
                rebind(b, promoted.get(b.var, b.var), replace_variables(b.value, promoted))
                for b in bindings
            ]
        )
        for kind, bindings in blocks
        if bindings
    ]
    result = replace_variables(replace_variables(func.body.body, renamed), promoted)
    body = relax.SeqExpr(written, result)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _original(
    binding: relax.Binding, value: relax.Expr, tuples: dict[relax.Expr, relax.Tuple]
) -> relax.Expr | None:
    """Return the variable or constant that a binding renames, None if it computes."""
    if isinstance(binding, relax.MatchCast):
        same = isinstance(value, relax.Var) and tvm_ffi.structural_equal(value.ty, binding.ty)
        return value if same else None
    if isinstance(value, relax.Var):
        return value
    if isinstance(value, tvm.ir.GenericConst) and isinstance(binding.var, relax.DataflowVar):
        return value
    if isinstance(value, relax.TupleGetItem):
        made = value.tuple_value
        made = made if isinstance(made, relax.Tuple) else tuples.get(made)
        part = None if made is None else made.fields[value.index]
        return part if isinstance(part, relax.Var) else None
    return None


def replace_variables(expr: relax.Expr, names: Names) -> relax.Expr:
    """Return an expression with variables replaced."""
    if not names:
        return expr
    if isinstance(expr, relax.Var):
        return names.get(expr, expr)
    return tvm_ffi.structural_map(expr, (relax.Var, lambda v: names.get(v, v)))


def rebind(binding: relax.Binding, var: relax.Var, value: relax.Expr) -> relax.Binding:
    """Return a binding of the same kind of another variable to another value."""
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty)
    return relax.VarBinding(var, value)
