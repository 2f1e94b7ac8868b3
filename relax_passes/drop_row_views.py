"""Multiply without joining the leading axes to rows and splitting them again.

    reshape(f(reshape(x, (a*b, k)) W), (a, b, n))  =  f(reshape(x, (a, b, k)) W)

f being element by element, with constants along the last axis, such as a bias. Exporters write
linear layers of tensors with three axes through `Gemm`, which takes matrices. The view between
the product and what follows keeps fusion from putting that into the product's epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import (
    Definitions,
    dimensions,
    equal_sizes,
    operator_name,
)
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

NAME = "drop_row_views"
# Exporters write at most this many operators between the product and the view.
_DEPTH = 8


@graph_pass(name=NAME, phase="raise")
def drop_row_views(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Multiply tensors with a constant matrix without viewing them as matrices first."""
    rewriter = _Drop(mod)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"dropped the row views of {rewriter.count} products")
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Chain:
    """`steps` element by element, first to last, on the product of a view of `source`."""

    source: relax.Expr
    product: tvm.ir.Call
    steps: list[tuple[tvm.ir.Call, int]]  # a call, and which argument is the value


@mutator
class _Drop(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.count = 0
        self.defs: Definitions | None = None

    def read(self, func: relax.Function) -> None:
        """Look at a function whose row views are to be dropped."""
        self.defs = Definitions(func)

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        chain = self._chain(call) if operator_name(call) == "reshape" else None
        if chain is None:
            return super().visit_call_(call)
        self.count += 1
        *lead, _ = dimensions(call) or []
        weight = chain.product.args[1]
        shape = relax.ShapeExpr([*lead, weight.ty.shape.values[0]])
        emit = self.builder_.emit
        value = emit(relax.op.reshape(self.visit_expr(chain.source), shape))
        out_dtype = chain.product.attrs.out_dtype
        value = relax.op.matmul(value, self.visit_expr(weight), out_dtype)
        for step, place in chain.steps:
            args = [_row(arg) for arg in step.args]
            args[place] = emit(value)
            value = tvm.ir.Call(step.op, args, step.attrs)
        return value

    def _chain(self, view: tvm.ir.Call) -> _Chain | None:
        """Return what `view` splits the rows of, if it is a product of joined rows."""
        assert self.defs is not None
        split = dimensions(view)
        value: relax.Expr = view.args[0]
        steps: list[tuple[tvm.ir.Call, int]] = []
        for _ in range(_DEPTH):
            call = self.defs.call(value)
            dims = dimensions(value)
            if call is None or dims is None or len(dims) != 2 or split is None or len(split) < 2:
                return None
            if self.defs.readers[value] != 1 or not equal_sizes(dims[-1], split[-1]):
                return None
            if operator_name(call) == "matmul":
                return self._product(call, steps[::-1])
            place = self._place(call)
            if place is None:
                return None
            steps.append((call, place))
            value = call.args[place]
        return None

    def _product(self, product: tvm.ir.Call, steps: list[tuple[tvm.ir.Call, int]]) -> _Chain | None:
        assert self.defs is not None
        x, weight = product.args
        joined = self.defs.call(x, "reshape")
        if joined is None or not isinstance(weight, tvm.ir.GenericConst) or weight.ty.ndim != 2:
            return None
        return _Chain(joined.args[0], product, steps)

    def _place(self, call: tvm.ir.Call) -> int | None:
        """Return which argument of an elementwise call is its value, the other being a row."""
        name = f"relax.{operator_name(call)}"
        if name in UNARY:
            return 0
        if name not in BINARY:
            return None
        constant = [isinstance(arg, tvm.ir.GenericConst) for arg in call.args]
        if constant[0] == constant[1]:
            return None
        place = constant.index(False)
        dims = dimensions(call.args[1 - place]) or []
        is_row = len(dims) < 2 or int(dims[0]) == 1
        return place if is_row else None


def _row(arg: relax.Expr) -> relax.Expr:
    """Return a constant without its axis for the rows."""
    is_tensor = isinstance(arg, tvm.ir.GenericConst) and isinstance(arg.ty, relax.TensorType)
    if not is_tensor or arg.ty.ndim < 2:
        return arg
    array = array_of(arg)
    return constant_from(array.reshape(array.shape[1:]))
