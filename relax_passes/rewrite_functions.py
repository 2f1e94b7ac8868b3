"""What mutator passes share: visiting each function, replacing calls, looking up variables."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator


def rewrite_functions(
    rewriter: PyExprMutator,
    mod: tvm.IRModule,
    prepare: Callable[[relax.Function], None] | None = None,
) -> None:
    """Rewrite each Relax function of `mod`; the results are in `rewriter.builder_`.

    Args:
        rewriter: Visits the functions one after the other.
        mod: The module.
        prepare: Called with each function before it is visited.
    """
    for name, func in mod.functions_items():
        if isinstance(func, relax.Function):
            if prepare is not None:
                prepare(func)
            rewriter.builder_.update_func(name, rewriter.visit_expr(func))


class CallRewriter(PyExprMutator):
    """Replaces calls one by one, their operands first; `count` is how many.

    A pass derives from it under `@mutator` and says in `replacement` what a call becomes.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.count = 0

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Return what a call becomes, None if it stays."""
        raise NotImplementedError

    def look_up(self, value: relax.Expr) -> relax.Expr:
        """Return the expression a variable stands for."""
        return definition_of(self, value)

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        """Visit the operands of a call, then replace it."""
        call = self.visit_expr_post_order(call)
        result = self.replacement(call)
        if result is None:
            return call
        self.count += 1
        return result


def definition_of(rewriter: PyExprMutator, value: relax.Expr) -> relax.Expr:
    """Return the expression a variable stands for, through any number of renamings."""
    while isinstance(value, relax.Var):
        producer = rewriter.lookup_binding(value)
        if producer is None:
            break
        value = producer
    return value
