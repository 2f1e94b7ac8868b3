"""Write a result over an operand that dies at the same call; one result a call.

A kernel may do so when it reads the operand only at the point it writes, and nothing else names
the operand's bytes afterwards. The kernel's variant has no parameter for it: its output buffer
*is* the operand's buffer, so that code generation knows the two alias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad

from relax_passes.analysis.overwrite import IN_PLACE_OPERANDS
from relax_passes.memory.live_ranges import CALL_TIR, LiveRanges, is_call_to, result_types


@dataclass(frozen=True)
class InPlace:
    """A result that is written over an operand: both by number among their kind."""

    operand: int
    result: int


def choose_in_place(
    mod: tvm.IRModule,
    bindings: list[relax.Binding],
    live: LiveRanges,
    may_overwrite: Callable[[int, int], bool] = lambda storage, step: True,
    allowed: Callable[[tirx.PrimFunc], list[tuple[int, int]]] | None = None,
) -> dict[relax.Var, InPlace]:
    """Pick for each call_tir the operand a result may overwrite; merge their storages in `live`.

    The operand must be a planned storage of the same type that nothing reads after this step, and
    that `may_overwrite(storage, step)` allows. Neither may be a part of a concatenation. `allowed`
    returns the pairs of parameters a PrimFunc allows, those of its attribute by default.
    """
    pairs_of = allowed or in_place_operands
    chosen: dict[relax.Var, InPlace] = {}
    for step, binding in enumerate(bindings):
        value = binding.value
        if not is_call_to(value, CALL_TIR):
            continue
        types, own = result_types(binding.var.ty), live.results[binding.var]
        if not any(live.storages[index].planned for index in own):
            continue
        args = value.args[1].fields
        for operand, parameter in pairs_of(mod[value.args[0]]):
            result = parameter - len(args)
            arg, storage = args[operand], live.storages[own[result]]
            named = live.names.get(arg, frozenset())
            if not storage.planned or storage.host is not None or len(named) != 1:
                continue
            if not tvm_ffi.structural_equal(arg.ty, types[result]):
                continue
            others = [a for k, a in enumerate(args) if k != operand]
            if any(named & live.names.get(other, frozenset()) for other in others):
                continue
            number = live.host_of(next(iter(named)))
            host = live.storages[number]
            if not host.planned or host.upper != step + 1 or not may_overwrite(number, step):
                continue
            if host.joined or arg in live.slices:
                continue
            host.upper = storage.upper
            storage.host = number
            chosen[binding.var] = InPlace(operand, result)
            break
    return chosen


def in_place_operands(func: tirx.PrimFunc) -> list[tuple[int, int]]:
    """Return the pairs (operand, result) of parameters of which the one may overwrite the other."""
    marked = func.attrs.get(IN_PLACE_OPERANDS) if func.attrs is not None else None
    return [(int(pair[0]), int(pair[1])) for pair in marked] if marked is not None else []


def in_place_variant(func: tirx.PrimFunc, operand: int, result: int) -> tirx.PrimFunc:
    """Return `func` without parameter `result`, which is written over parameter `operand`.

    An element that stays as it is, `if_then_else(changes, value, itself)`, is not written at all:
    of a cache only the new tokens are touched.
    """
    params = list(func.params)
    target, output = params[operand], params.pop(result)
    body = tvm_ffi.structural_map(
        func.body, (tirx.Var, lambda v: target if v.same_as(output) else v)
    )
    body = tvm_ffi.structural_map(body, (tirx.BufferStore, _where_it_changes))
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs).without_attr("global_symbol")


def _where_it_changes(store: tirx.BufferStore) -> tirx.Stmt:
    """Return a store under the condition that it stores something else than what is there."""
    value = store.value
    if not isinstance(value, tvm.ir.Call) or value.op != _IF_THEN_ELSE:
        return store
    condition, changed, kept = value.args
    stays = (
        isinstance(kept, TensorLoad)
        and kept.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(list(kept.indices), list(store.indices))
    )
    if not stays:
        return store
    inner = tirx.BufferStore(store.buffer, changed, store.indices)
    return tirx.IfThenElse(condition, inner, None)


_IF_THEN_ELSE = tvm.ir.Op.get("prim.if_then_else")
