"""What one run of a pass did to a module, counted: bindings, operators and kernel calls."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from relax_passes.verify import bindings_of

_CALL_TIR = "relax.call_tir"


@dataclass(frozen=True)
class PassEffect:
    """One run of one pass.

    `seconds` is wall time; `phase` is the one it ran in. Bindings, branches included, and kernel
    calls are (before, after) counts over all functions; `removed` and `added` count operators by
    name.
    """

    name: str
    phase: str
    seconds: float
    modified: bool
    bindings: tuple[int, int]
    kernels: tuple[int, int]
    removed: dict[str, int]
    added: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ModuleCounts:
    """How many bindings, kernel calls and calls of each operator a module has."""

    bindings: int
    kernels: int
    operators: Counter[str]


def count_module(mod: tvm.IRModule) -> ModuleCounts:
    """Count in one walk over the bindings of all functions, linear in their number."""
    operators: Counter[str] = Counter()
    bindings = kernels = 0
    prim_funcs = {v for v, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for binding in bindings_of(func.body):
            bindings += 1
            value = binding.value
            if not isinstance(value, Call):
                continue
            if isinstance(value.op, tvm.ir.Op):
                name = str(value.op.name)
                operators[name.removeprefix("relax.")] += 1
                kernels += name == _CALL_TIR
            else:
                kernels += value.op in prim_funcs
    return ModuleCounts(bindings, kernels, operators)


def effect_of(
    name: str,
    phase: str,
    seconds: float,
    modified: bool,
    before: ModuleCounts,
    after: ModuleCounts,
) -> PassEffect:
    """Return the effect of a run of pass `name` in `phase` between two counts."""
    return PassEffect(
        name,
        phase,
        seconds,
        modified,
        (before.bindings, after.bindings),
        (before.kernels, after.kernels),
        dict(before.operators - after.operators),
        dict(after.operators - before.operators),
    )
