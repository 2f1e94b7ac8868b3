"""Merge products of one tensor with several constant matrices into one.

    x A + a,  x B + b,  x C + c   ->   y = x [A B C] + [a b c],  and slices of y

such as the projections to Q, K and V. The tensor is read once and one kernel runs instead of
three. Cutting y apart is free where the readers read it in place (`analysis/slice_cost.py`):
attention, and whatever moves elements. Elsewhere it costs a copy, or an epilogue that would have
been computed in the product; then the launches saved must be worth more, which they are for few
rows only. Gate and up projections are the case: each has an epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import dimensions, operator_name
from relax_passes.analysis.readers import count_readers, readers_of
from relax_passes.analysis.slice_cost import SliceCost
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.lowering.rule import dtype_of
from relax_passes.merge_plan import MergePlan
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.pass_options import option
from relax_passes.rewrite_functions import rewrite_functions

NAME = "merge_parallel_products"


@dataclass(frozen=True)
class MergeOptions:
    """When a merge that costs copies pays."""

    launch_kib: int = option(
        64,
        "memory traffic that one kernel less is worth, in KiB; 0 merges only for free",
        at_least=0,
    )


@graph_pass(name=NAME, phase="rewrite", options=MergeOptions)
def merge_parallel_products(
    mod: tvm.IRModule, ctx: PassContext, options: MergeOptions
) -> tuple[tvm.IRModule, bool]:
    """Merge products of one tensor with several constant matrices, Q, K and V say, into one."""
    plan: MergePlan[_Product] = MergePlan()

    def choose(func: relax.Function) -> None:
        for group in _groups(func, options, ctx.log):
            plan.take(group)

    rewriter = _Merge(mod, plan)
    rewrite_functions(rewriter, mod, choose)
    if not plan.groups:
        return mod, False
    ctx.log.fire(NAME, f"merged {len(plan.parts)} products into {plan.groups}")
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Product:
    """`result = astype(matmul(x, weight), dtype) + bias`, of which the last two may be missing.

    `steps` are the product, what it is rounded to and the result, each once.
    """

    steps: tuple[relax.Var, ...]
    call: tvm.ir.Call
    bias: np.ndarray | None

    @property
    def product(self) -> relax.Var:
        return self.steps[0]

    @property
    def result(self) -> relax.Var:
        return self.steps[-1]

    @property
    def width(self) -> int:
        return int(self.call.args[1].ty.shape.values[1])

    @property
    def inner(self) -> tuple[relax.Var, ...]:
        return self.steps[:-1]


def _groups(func: relax.Function, options: MergeOptions, log: PassLog) -> list[list[_Product]]:
    """Return the products to be merged, a list for each tensor."""
    counts = count_readers(func)
    found = []
    for block in func.body.blocks:
        readers = readers_of(block)
        by_operand: dict[tuple[relax.Expr, str], list[_Product]] = {}
        for binding in block.bindings:
            if operator_name(getattr(binding, "value", None)) != "matmul":
                continue
            product = _product(binding, readers, counts)
            if product is not None:
                key = (product.call.args[0], dtype_of(product.result))
                by_operand.setdefault(key, []).append(product)
        cost = SliceCost(readers)
        for group in by_operand.values():
            if len(group) > 1 and _pays(group, cost, options, log):
                found.append(group)
    return found


def _product(
    binding: relax.Binding,
    readers: dict[relax.Var, list[relax.Binding]],
    counts: Mapping[relax.Var, int],
) -> _Product | None:
    call = binding.value
    x, weight = call.args
    if not isinstance(weight, tvm.ir.GenericConst) or weight.ty.ndim != 2 or x.ty.ndim < 1:
        return None
    if not isinstance(x, relax.Var) or dimensions(call) is None:
        return None

    def only_reader(var: relax.Var, name: str) -> relax.Binding | None:
        after = readers.get(var, [])
        alone = counts[var] == len(after) == 1 and operator_name(after[0].value) == name
        return after[0] if alone else None

    steps = [binding.var]
    if dtype_of(x) != dtype_of(call):  # summed in float32: the type of x comes by rounding
        rounded = only_reader(binding.var, "astype")
        if rounded is None or dtype_of(rounded.var) != dtype_of(x):
            return None
        steps.append(rounded.var)
    added = only_reader(steps[-1], "add")
    if added is not None:
        others = [a for a in added.value.args if not a.same_as(steps[-1])]
        bias = _bias(others[0], call) if others else None
        if bias is not None:
            return _Product((*steps, added.var), call, bias)
    return _Product(tuple(steps), call, None)


def _bias(value: relax.Expr, product: tvm.ir.Call) -> np.ndarray | None:
    """Return a constant that holds one number a column, in shape (columns,)."""
    if not isinstance(value, tvm.ir.GenericConst) or value.ty.ndim > product.ty.ndim:
        return None
    array, columns = array_of(value), int(product.args[1].ty.shape.values[1])
    if array.ndim == 0 or array.shape[-1] != columns or array.size != columns:
        return None
    return array.reshape(-1)


def _pays(group: list[_Product], cost: SliceCost, options: MergeOptions, log: PassLog) -> bool:
    total, offset, moved = sum(p.width for p in group), 0, 0
    for product in group:
        part = cost.bytes_moved(product.result, offset, total)
        offset += product.width
        if part is None:
            reason = "cutting the merged product apart costs copies of symbolic size"
            log.decline(NAME, product.result.name, reason)
            return False
        moved += part
    worth = (len(group) - 1) * options.launch_kib * 1024
    if moved > worth:
        log.decline(
            NAME,
            group[0].result.name,
            f"cutting the merged product apart moves {moved // 1024} KiB, more than the "
            f"{worth // 1024} KiB that {len(group) - 1} kernels less are worth",
        )
    return moved <= worth


@mutator
class _Merge(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, plan: MergePlan[_Product]) -> None:
        super().__init__(mod)
        self.plan = plan
        self.merged: dict[relax.Var, relax.Var] = {}  # by the first product of a group

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = binding.var
        part = self.plan.parts.get(var)
        if part is not None:
            cut = part.cut_from(self._merged(part.group), var.ty.ndim - 1)
            self.set_var_remap(var, emit_as(self.builder_, var, cut, var.name))
        elif var not in self.plan.absorbed:
            super().visit_var_binding_(binding)

    def _merged(self, group: list[_Product]) -> relax.Var:
        """Return the product of the whole group, emitted at its first result."""
        first = group[0]
        if first.product not in self.merged:
            weights = [array_of(p.call.args[1]) for p in group]
            merged = self.builder_.emit(
                relax.op.matmul(
                    self.visit_expr(first.call.args[0]),
                    constant_from(np.concatenate(weights, axis=1)),
                    first.call.attrs.out_dtype,
                ),
                "_".join(p.product.name for p in group)[:60],
            )
            dtype = dtype_of(first.result)
            if dtype_of(merged) != dtype:
                merged = self.builder_.emit(relax.op.astype(merged, dtype))
            if any(p.bias is not None for p in group):
                biases = [np.zeros(p.width, dtype) if p.bias is None else p.bias for p in group]
                bias = constant_from(np.concatenate(biases).astype(dtype))
                merged = self.builder_.emit(relax.op.add(merged, bias))
            self.merged[first.product] = merged
        return self.merged[first.product]
