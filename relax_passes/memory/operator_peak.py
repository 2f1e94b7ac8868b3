"""Estimate the most bytes alive at once while a graph still consists of operators.

Passes that run before lowering ask: what the arena will need is known only once operators are fused
and laid in place. Taken to need no bytes of its own is a view, a part of a concatenation, a
transpose or slice that convolutions and products alone read (`lowering/read_in_place.py`), and a
map over an operand that dies there: fusion computes it in the kernel of the operand, or
`plan_memory` writes it in its place. What is given to a function or returned is not in the arena.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import analysis as relax_analysis

from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.lowering.views import VIEWS
from relax_passes.memory.greedy_offsets import Buffer
from relax_passes.memory.join_parts import join_parts
from relax_passes.memory.live_ranges import LiveRanges, Storage, bindings_of, static_bytes
from relax_passes.memory.plan_offsets import fullest_step

_VIEWS = frozenset(name.removeprefix("relax.") for name in VIEWS)
_READ_IN_PLACE = frozenset({"permute_dims", "strided_slice"})
_HEAVY = frozenset({"nn.conv2d", "matmul"})
_OF_ROWS = frozenset(f"relax.nn.{name}" for name in ("softmax", "layer_norm", "rms_norm"))
_MAPS = frozenset(name.removeprefix("relax.") for name in UNARY | BINARY | _OF_ROWS)


def operator_peak(func: relax.Function) -> tuple[int, int]:
    """Return the first step, a binding's number, at which most bytes are alive, and how many."""
    bindings = bindings_of(func)
    live = _live_ranges(bindings, func.body.body)
    join_parts(bindings, live)
    _overwrite(bindings, live)
    placed = (live.storages[index] for index in live.placed())
    return fullest_step([Buffer(s.lower, s.upper, s.arena_bytes) for s in placed])


def _live_ranges(bindings: list[relax.Binding], result: relax.Expr) -> LiveRanges:
    """Return live ranges where each operator but a view writes tensors of its own."""
    live, stored = LiveRanges(), _stored(bindings)
    for step, binding in enumerate(bindings):
        value, name = binding.value, operator_name(binding.value)
        read = live.of(value)
        leaves = isinstance(value, relax.If) or (isinstance(value, tvm.ir.Call) and not name)
        for index in read:
            live.storages[index].upper = step + 1
            live.storages[index].escapes |= leaves
        in_place = name in _READ_IN_PLACE and binding.var not in stored
        if leaves or not name or name in _VIEWS or in_place:
            live.names[binding.var] = read
            continue
        ty = binding.var.ty
        types = ty.fields if isinstance(ty, relax.TupleType) else [ty]
        own = range(len(live.storages), len(live.storages) + len(types))
        live.storages += [Storage(one, _bytes(one), step, step + 1) for one in types]
        live.results[binding.var] = tuple(own)
        live.names[binding.var] = frozenset(own)
    for index in live.of(result):
        live.storages[index].upper = len(bindings) + 1
        live.storages[index].escapes = True
    return live


def _stored(bindings: list[relax.Binding]) -> set[relax.Var]:
    """Return what other operators than convolutions and products read."""
    others = [b.value for b in bindings if operator_name(b.value) not in _HEAVY]
    return {var for value in others for var in relax_analysis.free_vars(value)}


def _bytes(ty: tvm.ir.Type) -> int | None:
    return static_bytes(ty) if isinstance(ty, relax.TensorType) else None


def _overwrite(bindings: list[relax.Binding], live: LiveRanges) -> None:
    """Lay each map on an operand of its size that nothing reads later."""
    for step, binding in enumerate(bindings):
        if operator_name(binding.value) not in _MAPS:
            continue
        storage = live.storages[live.results[binding.var][0]]
        for arg in binding.value.args:
            named = live.names.get(arg, frozenset()) if isinstance(arg, relax.Var) else ()
            if len(named) != 1 or storage.host is not None or not storage.planned:
                continue
            number = live.host_of(next(iter(named)))
            host = live.storages[number]
            fits = host.planned and host.size == storage.size and not host.joined
            if fits and host.upper == step + 1:
                host.upper, storage.host = storage.upper, number
