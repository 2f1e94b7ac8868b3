"""Write the next value of a state over the parameter that holds it, as a cache in a decoder.

A state is a parameter of `main` whose next value is one of its results (`PassContext.states`). The
caller passes that result to the next call, so the parameter may be overwritten: by the kernel that
makes the result, where it reads the parameter only at the points it writes, and nothing reads the
parameter later.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.memory.in_place import InPlace, in_place_operands
from relax_passes.memory.live_ranges import (
    CALL_TIR,
    CONCAT,
    LiveRanges,
    bindings_of,
    is_call_to,
    result_types,
)
from relax_passes.pass_base import PassContext

STATES = "relaxc.states"  # attribute of a planned function: parameters that its kernels overwrite


def update_states(
    mod: tvm.IRModule, live: LiveRanges, ctx: PassContext
) -> dict[relax.Var, InPlace]:
    """Pick for each state of `main` the kernel that writes its next value over it."""
    main, chosen = mod["main"], dict[relax.Var, InPlace]()
    bindings = bindings_of(main)
    for param, result in ctx.states:
        state, value = main.params[param], _part(main, bindings, result)
        found = _writer(mod, bindings, live, state, value)
        if isinstance(found, str):
            ctx.log.decline("update_states", state.name, found)
        elif found[0] in chosen:
            ctx.log.decline("update_states", state.name, "its kernel overwrites another state")
        else:
            chosen[found[0]] = found[1]
    if chosen:
        ctx.log.fire("update_states", f"{len(chosen)} states are overwritten by their next value")
    return chosen


def overwritten_states(main: relax.Function, chosen: dict[relax.Var, InPlace]) -> list[int]:
    """Return the numbers of the parameters of `main` that the chosen kernels overwrite."""
    bindings = bindings_of(main)
    overwritten = {
        binding.value.args[1].fields[chosen[binding.var].operand]
        for binding in bindings
        if binding.var in chosen
    }
    names = (_names_of(bindings, param) for param in main.params)
    return [number for number, own in enumerate(names) if own and own & overwritten]


def _part(main: relax.Function, bindings: Sequence[relax.Binding], result: int) -> relax.Expr:
    """Return result number `result` of a function."""
    whole = main.body.body
    values = {binding.var: binding.value for binding in bindings}
    while whole in values and not isinstance(whole, relax.Tuple):
        value = values[whole]
        if not isinstance(value, relax.Tuple | relax.Var):
            break
        whole = value
    return whole.fields[result] if isinstance(whole, relax.Tuple) else whole


def _writer(
    mod: tvm.IRModule,
    bindings: Sequence[relax.Binding],
    live: LiveRanges,
    state: relax.Var,
    value: relax.Expr,
) -> tuple[relax.Var, InPlace] | str:
    """Return the kernel that may write a state's next value over it, or why there is none."""
    names = _names_of(bindings, state)
    if names is None:
        return "a function of its own reads it"
    storages = live.names.get(value, frozenset())
    if len(storages) != 1:
        return "its next value is no tensor of its own"
    (index,) = storages
    for step, binding in enumerate(bindings):
        if index not in live.results.get(binding.var, ()) or not is_call_to(
            binding.value, CALL_TIR
        ):
            continue
        later = [b for b in bindings[step + 1 :] if names & set(_used(b.value))]
        if later:
            return f"{later[0].var.name} reads it after its next value is known"
        args, types = binding.value.args[1].fields, result_types(binding.var.ty)
        number = live.results[binding.var].index(index)
        for operand, parameter in in_place_operands(mod[binding.value.args[0]]):
            if parameter - len(args) != number or args[operand] not in names:
                continue
            same = tvm_ffi.structural_equal(args[operand].ty, types[number])
            if same and sum(arg in names for arg in args) == 1:
                return binding.var, InPlace(operand, number)
        return f"the kernel of {binding.var.name} reads it where it does not write"
    return "no kernel makes its next value"


def _names_of(bindings: Sequence[relax.Binding], state: relax.Var) -> set[relax.Expr] | None:
    """Return a parameter and its views; None where a function may return or keep it."""
    names: set[relax.Expr] = {state}
    for binding in bindings:
        value = binding.value
        if is_call_to(value, CALL_TIR) or is_call_to(value, CONCAT):
            continue
        if names & set(_used(value)):
            called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
            if called or isinstance(value, relax.If):
                return None
            names.add(binding.var)
    return names


def _used(value: relax.Expr) -> list[relax.Var]:
    return list(relax.analysis.free_vars(value))
