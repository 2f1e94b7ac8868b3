"""Split off what depends on parameters alone: a function `prepare`, to be called when they change.

    main(x, w) = f(x, g(w))   ->   prepare(w) = g(w),   main(x, p) = f(x, p)

Weights that are arguments are packed, transformed and folded in each call otherwise. This runs on
lowered graphs. Both functions say by the attribute `TAKES` which inputs of the first `main` they
take; `main` takes after them what `prepare` returns, in order. A value that is much larger than
what it is made of stays: reading it would cost more than making it in the kernel that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.analysis import free_vars, tir_vars_in_type

from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.fixed_values import FIXED_INPUTS, PREPARE, TAKES, fixed_inputs
from relax_passes.analysis.tensor_bytes import bytes_of
from relax_passes.canonicalize_bindings import Names, rebind, replace_variables
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option

NAME = "lift_preparation"
# Winograd's transform of a 3x3 kernel has 4 times its elements for 4x4 outputs, 7 for 6x6.
_GROWTH = 8


@dataclass(frozen=True)
class LiftOptions:
    """What is worth its bytes between calls."""

    max_grown_bytes: int = option(
        1 << 20, "largest value made from smaller parameters, in bytes", at_least=0
    )


@graph_pass(name=NAME, phase="lower", options=LiftOptions)
def lift_preparation(
    mod: tvm.IRModule, ctx: PassContext, options: LiftOptions
) -> tuple[tvm.IRModule, bool]:
    """Split off what depends on parameters alone, as a function that is called when they change."""
    main = mod["main"]
    if not fixed_inputs(main):
        return mod, False
    split = _Split(main, options)
    if not split.handed:
        ctx.log.decline(NAME, "main", "nothing is computed from parameters alone")
        return mod, False
    builder = relax.BlockBuilder(mod)
    builder.add_func(relax.utils.copy_with_new_vars(split.prepare()), PREPARE)
    builder.update_func(mod.get_global_var("main"), split.rest())
    calls = sum(isinstance(binding.value, tvm.ir.Call) for binding in split.lifted)
    ctx.log.fire(NAME, f"{calls} calls prepare {len(split.handed)} values when parameters change")
    return relax.transform.Normalize()(builder.get()), True


class _Split:
    """Which bindings of a function are lifted, and which values they hand over.

    Attributes:
        lifted: The bindings that `prepare` gets, in order.
        handed: Their variables that the rest of the function reads.
    """

    def __init__(self, func: relax.Function, options: LiftOptions) -> None:
        self._func, self._most = func, options.max_grown_bytes
        self._inputs = set(fixed_inputs(func))
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        movable, views = self._movable(bindings)
        # A view of a parameter costs nothing: it is taken where it is read.
        self._moved = {binding.var for binding in movable} - views
        read = _read(b for b in bindings if b.var not in self._moved)
        read.update(free_vars(func.body.body))
        self.handed = [b.var for b in movable if b.var in read & self._moved]
        self.lifted = _live(movable, self.handed)

    def prepare(self) -> relax.Function:
        """Return the new function, with the old one's variables."""
        params, read = self._func.params, _read(self.lifted)
        takes = [number for number, param in enumerate(params) if param in read]
        # What a block hands out has no local name.
        names: Names = {var: relax.Var(var.name, var.ty) for var in self.handed}
        block = relax.DataflowBlock(_renamed(self.lifted, names))
        results = [names[var] for var in self.handed]
        return _function(
            [params[number] for number in takes],
            relax.SeqExpr([block], results[0] if len(results) == 1 else relax.Tuple(results)),
            {"global_symbol": PREPARE, TAKES: takes},
        )

    def rest(self) -> relax.Function:
        """Return what is left of the function: it takes what `prepare` returns."""
        func = self._func
        given: Names = {var: relax.Var(var.name, var.ty) for var in self.handed}
        blocks: list[relax.BindingBlock] = []
        read = set(free_vars(func.body.body))
        for block in reversed(func.body.blocks):
            left = [b for b in block.bindings if b.var not in self._moved]
            if isinstance(block, relax.DataflowBlock):
                left = _live(left, read)  # a view that only `prepare` reads goes, too
            read |= _read(left)
            if left:
                blocks.append(type(block)(_renamed(left, given)))
        params = func.params
        takes = [n for n, p in enumerate(params) if p in read or p not in self._inputs]
        attrs = {key: value for key, value in dict(func.attrs).items() if key != FIXED_INPUTS}
        return _function(
            [*(params[number] for number in takes), *given.values()],
            relax.SeqExpr(blocks[::-1], replace_variables(func.body.body, given)),
            {**attrs, TAKES: takes},
        )

    def _movable(
        self, bindings: Iterable[relax.Binding]
    ) -> tuple[list[relax.VarBinding], set[relax.Var]]:
        """Return the bindings that could be lifted, and which variables are views of inputs."""
        sources = {var: frozenset((var,)) for var in self._inputs}
        views, movable = set(self._inputs), []
        for binding in bindings:
            read = free_vars(binding.value)
            if not read or not all(var in sources for var in read) or not _is_pure(binding):
                continue
            made_of = frozenset[relax.Var]().union(*(sources[var] for var in read))
            grown = _GROWTH * sum(map(bytes_of, made_of))
            if bytes_of(binding.var) > max(self._most, grown):
                continue
            sources[binding.var] = made_of
            movable.append(binding)
            if operator_name(binding.value) != "call_tir" and views.issuperset(read):
                views.add(binding.var)
        return movable, views


def _is_pure(binding: relax.Binding) -> bool:
    """Tell whether a binding makes one tensor whose size no input of a call decides."""
    value, ty = binding.value, binding.var.ty
    if not isinstance(binding, relax.VarBinding) or not isinstance(ty, relax.TensorType):
        return False
    is_name = isinstance(value, relax.Var)
    if not is_name and operator_name(value) not in ("call_tir", "reshape"):
        return False
    sizes = [] if is_name else [a.ty for a in value.args if isinstance(a, relax.ShapeExpr)]
    return not any(tir_vars_in_type(used) for used in (ty, *sizes))


def _read(bindings: Iterable[relax.Binding]) -> set[relax.Var]:
    return {var for binding in bindings for var in free_vars(binding.value)}


def _live(bindings: Sequence[relax.Binding], read: Iterable[relax.Var]) -> list[relax.Binding]:
    """Return those of a block's bindings that are read by others, or in the end."""
    needed, kept = set(read), []
    for binding in reversed(bindings):
        if binding.var in needed or isinstance(binding, relax.MatchCast):
            needed.update(free_vars(binding.value))
            kept.append(binding)
    return kept[::-1]


def _renamed(bindings: Iterable[relax.Binding], names: Names) -> list[relax.Binding]:
    return [
        rebind(
            binding, names.get(binding.var, binding.var), replace_variables(binding.value, names)
        )
        for binding in bindings
    ]


def _function(
    params: Sequence[relax.Var], body: relax.SeqExpr, attrs: dict[str, object]
) -> relax.Function:
    return relax.Function(
        list(params), body, body.body.ty, True, tvm.ir.make_node("ir.DictAttrs", **attrs)
    )
