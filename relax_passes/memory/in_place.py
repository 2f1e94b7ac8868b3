"""Write a result over an operand that dies at the same call.

A kernel may do so when it reads the operand only at the point it writes, and nothing else names
the operand's bytes afterwards. The kernel's variant has no output parameter: its output buffer
*is* the operand's buffer, so that code generation knows the two alias.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.analysis.overwrite import IN_PLACE_OPERANDS
from relax_passes.memory.live_ranges import CALL_TIR, LiveRanges, is_call_to, result_types


def choose_in_place(
    mod: tvm.IRModule,
    bindings: list[relax.Binding],
    live: LiveRanges,
    may_overwrite: Callable[[int, int], bool] = lambda storage, step: True,
) -> dict[relax.Var, int]:
    """Pick for each call_tir the operand its result may overwrite; merge their storages in `live`.

    The operand must be a planned storage of the same type that nothing reads after this step, and
    that `may_overwrite(storage, step)` allows. Neither may be a part of a concatenation.
    """
    chosen: dict[relax.Var, int] = {}
    for step, binding in enumerate(bindings):
        value = binding.value
        if not is_call_to(value, CALL_TIR) or len(result_types(binding.var.ty)) != 1:
            continue
        (own,) = live.results[binding.var]
        if not live.storages[own].planned or live.storages[own].host is not None:
            continue
        func = mod[value.args[0]]
        for operand in in_place_operands(func):
            arg = value.args[1].fields[operand]
            named = live.names.get(arg, frozenset())
            if len(named) != 1 or not tvm_ffi.structural_equal(arg.ty, binding.var.ty):
                continue
            others = [a for k, a in enumerate(value.args[1].fields) if k != operand]
            if any(named & live.names.get(other, frozenset()) for other in others):
                continue
            host = live.host_of(next(iter(named)))
            storage = live.storages[host]
            if not storage.planned or storage.upper != step + 1 or not may_overwrite(host, step):
                continue
            if storage.joined or arg in live.slices:
                continue
            storage.upper = live.storages[own].upper
            live.storages[own].host = host
            chosen[binding.var] = operand
            break
    return chosen


def in_place_operands(func: tirx.PrimFunc) -> list[int]:
    """Return the parameter numbers a PrimFunc may overwrite with its result."""
    marked = func.attrs.get(IN_PLACE_OPERANDS) if func.attrs is not None else None
    return [int(number) for number in marked] if marked is not None else []


def in_place_variant(func: tirx.PrimFunc, operand: int) -> tirx.PrimFunc:
    """Return `func` without its last parameter, its result written over parameter `operand`."""
    *params, output = func.params
    target = params[operand]
    body = tvm_ffi.structural_map(
        func.body, (tirx.Var, lambda v: target if v.same_as(output) else v)
    )
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs).without_attr("global_symbol")
