"""What mutator passes share: visiting each function, and looking up what a variable stands for."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator


def rewrite_functions(rewriter: PyExprMutator, mod: tvm.IRModule) -> None:
    """Rewrite each Relax function of `mod`; the results are in `rewriter.builder_`."""
    for name, func in mod.functions_items():
        if isinstance(func, relax.Function):
            rewriter.builder_.update_func(name, rewriter.visit_expr(func))


def definition_of(rewriter: PyExprMutator, value: relax.Expr) -> relax.Expr:
    """Return the expression a variable stands for, through any number of renamings."""
    while isinstance(value, relax.Var):
        producer = rewriter.lookup_binding(value)
        if producer is None:
            break
        value = producer
    return value
