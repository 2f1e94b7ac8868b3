"""What mutator passes share: visiting each function, replacing calls, looking up variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


class CalleeRewriter(CallRewriter):
    """Replaces functions by some of another type; `replacement` says how those are called.

    A variable's type is that of its function, so each has a new one: `callees` maps old to new.
    """

    def __init__(
        self, mod: tvm.IRModule, replaced: Mapping[tvm.ir.GlobalVar, tvm.ir.BaseFunc]
    ) -> None:
        """Take the functions of `replaced` out of a module, and put in what they map to."""
        super().__init__(_without(mod, replaced))
        self.callees = {
            var: self.builder_.add_func(func, var.name_hint) for var, func in replaced.items()
        }


def rewrite_callers(rewriter: CalleeRewriter, mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module that `rewriter` was made of with functions and calls replaced."""
    rewrite_functions(rewriter, _without(mod, rewriter.callees))
    return rewriter.builder_.get()


def _without(mod: tvm.IRModule, gone: Mapping[tvm.ir.GlobalVar, object]) -> tvm.IRModule:
    kept = {var: func for var, func in mod.functions.items() if var not in gone}
    return tvm.IRModule(kept, attrs=mod.attrs)


def definition_of(rewriter: PyExprMutator, value: relax.Expr) -> relax.Expr:
    """Return the expression a variable stands for, through any number of renamings."""
    while isinstance(value, relax.Var):
        producer = rewriter.lookup_binding(value)
        if producer is None:
            break
        value = producer
    return value
