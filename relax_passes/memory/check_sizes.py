"""Check sizes that are known only at run time before memory is allocated or read by them.

A few bytes of input can ask for 2^62 elements, or for sizes that contradict each other. All that
must hold of the sizes of a function is checked where the last of them becomes known: one kernel
call at its entry, and one after each place where sizes are read from data. It raises an error with
the sizes of the call and where they come from, and costs less than a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax, tirx
from tvm.ir import StringImm
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from relax_passes.memory.live_ranges import bindings_of
from relax_passes.memory.size_conditions import (
    Condition,
    ConditionFinder,
    is_statement,
    promised_bounds,
    reasons_of,
)
from relax_passes.memory.size_fault import SIZE_FAULT
from relax_passes.memory.size_origins import size_origins
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.schedule_kernels import SCHEDULED

NAME = "check_sizes"
_CHECKED = "relaxc.sizes_checked"


@graph_pass(name=NAME, phase="memory")
def check_sizes(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Check sizes known only at run time before memory depends on them."""
    builder = relax.BlockBuilder(mod)
    changed: dict[tvm.ir.GlobalVar, relax.Function] = {}
    count = checks = 0
    reasons = reasons_of(mod)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function) and _CHECKED not in (func.attrs or {}):
            fresh = _fresh_symbols(func)
            placed, restated = _place_conditions(func, fresh, reasons), _restated(func, fresh)
            promised = list(promised_bounds(func))
            if promised:
                placed[0] = [*promised, *placed.get(0, [])]
            if placed or restated:
                changed[var] = _insert(func, placed, restated, builder)
                checks += len(placed)
                count += sum(len(conditions) for conditions in placed.values())
    if not changed:
        return mod, False
    ctx.log.fire(NAME, f"{count} conditions on sizes in {checks} checks")
    functions = dict(builder.get().functions.items())
    checked = tvm.IRModule({**functions, **changed}, attrs=mod.attrs)
    return relax.transform.Normalize()(checked), True


def _fresh_symbols(func: relax.Function) -> dict[relax.Var, frozenset[tirx.Var]]:
    """Return which sizes each cast gives a name for the first time."""
    known = {symbol for param in func.params for symbol in _symbols(param.ty)}
    found = {}
    for binding in bindings_of(func):
        if isinstance(binding, relax.MatchCast):
            found[binding.var] = frozenset(_symbols(binding.ty)) - known
            known |= found[binding.var]
    return found


def _place_conditions(
    func: relax.Function,
    fresh_symbols: dict[relax.Var, frozenset[tirx.Var]],
    reasons: Mapping[str, str],
) -> dict[int, list[Condition]]:
    """Return the conditions by the number of bindings that come before their check."""
    finder = ConditionFinder(reasons)
    known = {symbol: 0 for param in func.params for symbol in _symbols(param.ty)}
    finder.declare(list(known))
    placed: dict[int, list[Condition]] = {}
    for step, binding in enumerate(bindings_of(func), start=1):
        fresh = fresh_symbols.get(binding.var, frozenset())
        known |= dict.fromkeys(fresh, step)
        for condition in finder.of(binding, fresh):
            if condition.symbols <= known.keys():
                place = max((known[symbol] for symbol in condition.symbols), default=0)
                placed.setdefault(place, []).append(condition)
        finder.declare(list(fresh))
    return placed


def _symbols(ty: tvm.ir.Type) -> list[tirx.Var]:
    return list(relax.analysis.tir_vars_in_type(ty))


def _insert(
    func: relax.Function,
    placed: dict[int, list[Condition]],
    restated: set[relax.Var],
    builder: relax.BlockBuilder,
) -> relax.Function:
    """Return the function with a checking kernel called at each place, restated casts as views."""
    origins = size_origins(func)

    def check(conditions: list[Condition]) -> relax.Binding:
        symbols = sorted({s for c in conditions for s in c.symbols}, key=lambda s: str(s.name))
        callee = builder.add_func(_kernel(conditions, symbols, origins), NAME)
        call = builder.normalize(relax.Call(callee, symbols))
        return relax.VarBinding(relax.Var("_", call.ty), call)

    stated = _statements(func)
    bindings = [check(placed[0])] if 0 in placed else []
    blocks: list[relax.BindingBlock] = []
    step = 0
    for block in func.body.blocks:
        for binding in block.bindings:
            step += 1
            if binding.var in restated:
                view = relax.op.reshape(binding.value, binding.ty.shape)
                bindings.append(relax.VarBinding(binding.var, builder.normalize(view)))
            elif binding.var not in stated:
                bindings.append(binding)
            if step in placed:
                bindings.append(check(placed[step]))
        blocks.append(relax.BindingBlock(bindings))
        bindings = []
    if bindings:  # a function without bindings
        blocks.append(relax.BindingBlock(bindings))
    body = relax.SeqExpr(blocks, func.body.body)
    attrs = tvm.ir.make_node("ir.DictAttrs", **{**dict(func.attrs or {}), _CHECKED: True})
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, attrs)


def _statements(func: relax.Function) -> set[relax.Var]:
    """Return the variables that only state conditions, those of the shapes they read included."""
    bindings = bindings_of(func)
    stated = {binding.var for binding in bindings if is_statement(binding)}
    read = {b.value for b in bindings if b.var in stated and isinstance(b.value, relax.Var)}
    if read:
        for binding in bindings:
            if binding.var not in stated:
                read -= set(relax.analysis.free_vars(binding.value))
        read -= set(relax.analysis.free_vars(func.body.body))
    return stated | read


def _restated(
    func: relax.Function, fresh_symbols: dict[relax.Var, frozenset[tirx.Var]]
) -> set[relax.Var]:
    """Return the casts that only give a tensor's sizes other names, all of them known before.

    They become views. The passes that make VM instructions take a cast for a definition: where it
    says that min(s, 64) is s, they would replace s by min(s, 64) without end.
    """

    def is_restated(cast: relax.MatchCast) -> bool:
        return not fresh_symbols[cast.var] and all(
            isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
            for ty in (cast.value.ty, cast.ty)
        )

    casts = (b for b in bindings_of(func) if isinstance(b, relax.MatchCast))
    return {cast.var for cast in casts if is_restated(cast)}


def _kernel(
    conditions: Sequence[Condition],
    symbols: Sequence[tirx.Var],
    origins: Mapping[tirx.Var, str],
) -> tirx.PrimFunc:
    """Return a function of sizes that raises an error where a condition does not hold."""
    with IRBuilder() as builder:
        with T.attr(0, NAME, StringImm("conditions")):  # one parent for several statements
            for each in conditions:
                with T.If(tirx.Not(each.holds)), T.Then():
                    message, sizes = each.message(origins)
                    T.evaluate(tirx.call_packed(SIZE_FAULT, message, *sizes))
        func = tirx.PrimFunc(list(symbols), builder.get())
    func = func.with_attr({SCHEDULED: 1, "tirx.is_host_func": True})
    return tvm.s_tir.renew_defs(func)
