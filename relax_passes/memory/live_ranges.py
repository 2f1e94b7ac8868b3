"""Which storage each variable names, and over which steps that storage must keep its bytes.

Step i is the i-th binding. Views (reshape, match_cast, tuples and their elements) name the storage
of what they look at, so a storage lives until the last use of its last name. A call
this analysis knows nothing about may return a view of any argument, so its result names them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax import analysis as relax_analysis
from tvm.tirx import IntImm

CALL_TIR = "relax.call_tir"
CONCAT = "relax.concat"  # of parts that `join_parts` may have written into it
SLICE = "relax.memory.view"  # names some bytes of its source
# These read a tensor without regard to where in its storage it begins.
PACKED_CALLS = ("relax.call_pure_packed", "relax.call_dps_packed", "relax.tensor_to_shape")


@dataclass
class Storage:
    """A run of bytes that one kernel result occupies; `upper` is the step after its last use.

    `size` is None where a dimension is symbolic and has no upper bound. An `escapes` storage is
    returned to the caller, or read by a packed function, which ignores that a tensor may begin amid
    the arena. `host` is the storage whose bytes it overwrites, if it is written in place, or that
    it is a part of, `shift` bytes from its start; a `joined` storage has such parts. A `foreign`
    storage belongs to a function that was called, or to whatever that function was given.
    """

    ty: relax.TensorType
    size: int | None
    lower: int
    upper: int
    escapes: bool = False
    host: int | None = None
    foreign: bool = False
    shift: int = 0
    joined: bool = False

    @property
    def planned(self) -> bool:
        """Whether the storage has a place in the arena."""
        return self.size is not None and not self.escapes

    @property
    def arena_bytes(self) -> int:
        """How many bytes of the arena the storage needs while it lives, 0 if it has no place."""
        return self.size if self.size is not None and not self.escapes else 0


@dataclass
class LiveRanges:
    """Storages of a function, the storages each variable names, and each call_tir's own ones.

    A concatenation has a storage of its own too. `slices` are the names of only some of the bytes.
    """

    storages: list[Storage] = field(default_factory=list)
    names: dict[relax.Expr, frozenset[int]] = field(default_factory=dict)
    results: dict[relax.Expr, tuple[int, ...]] = field(default_factory=dict)
    slices: set[relax.Expr] = field(default_factory=set)

    def placed(self) -> list[int]:
        """Return the storages that need a place of their own in the arena."""
        return [i for i, s in enumerate(self.storages) if s.planned and s.host is None]

    def host_of(self, index: int) -> int:
        """Return the storage whose bytes hold storage `index`."""
        return self.place_of(index)[0]

    def place_of(self, index: int) -> tuple[int, int]:
        """Return the storage whose bytes hold storage `index`, and at how many bytes from it."""
        shift = 0
        while (host := self.storages[index].host) is not None:
            shift += self.storages[index].shift
            index = host
        return index, shift

    def of(self, expr: relax.Expr) -> frozenset[int]:
        """Return the storages an expression may read: those of all variables in it."""
        used = (self.names.get(var, frozenset()) for var in relax_analysis.free_vars(expr))
        return frozenset().union(*used)


def analyze_live_ranges(
    bindings: list[relax.Binding],
    result: relax.Expr,
    bytes_of: Callable[[relax.TensorType], int | None] | None = None,
) -> LiveRanges:
    """Compute the live ranges of a straight-line sequence that returns `result`.

    Args:
        bindings: Bindings in the order they run.
        result: The function's result; the storages it names escape.
        bytes_of: The most bytes a tensor can take, None where there is no bound; by default only
            tensors without symbolic sizes have one.
    """
    bytes_of = bytes_of or static_bytes
    live = LiveRanges()
    for step, binding in enumerate(bindings):
        value = binding.value
        read = live.of(value)
        for index in read:
            live.storages[index].upper = step + 1
            live.storages[index].escapes |= _leaves(value)
        if is_call_to(value, CALL_TIR) or is_call_to(value, CONCAT):
            own = []
            for ty in result_types(binding.var.ty):
                own.append(len(live.storages))
                live.storages.append(Storage(ty, bytes_of(ty), step, step + 1))
            live.results[binding.var] = tuple(own)
            live.names[binding.var] = frozenset(own)
        elif _calls_function(value):
            # It may return what it was given, or a tensor of its own.
            foreign = frozenset([len(live.storages)])
            live.storages.append(Storage(binding.var.ty, None, step, step + 1, foreign=True))
            live.names[binding.var] = read | foreign
        elif isinstance(value, relax.TupleGetItem):
            parts = live.results.get(value.tuple_value, ())
            picked = frozenset(parts[value.index : value.index + 1])
            live.names[binding.var] = picked or read
        else:
            live.names[binding.var] = read
        if is_call_to(value, SLICE) or any(
            var in live.slices for var in relax_analysis.free_vars(value)
        ):
            live.slices.update({binding.var} - live.results.keys())
    for index in live.of(result):
        live.storages[index].upper = len(bindings) + 1
        live.storages[index].escapes = True
    return live


def _calls_function(value: relax.Expr) -> bool:
    """Tell whether another Relax function computes the value, in one of two branches or at once."""
    if isinstance(value, relax.If):
        return True
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)


def _leaves(value: relax.Expr) -> bool:
    """Tell whether what a value is computed from is seen by more than kernels."""
    return _calls_function(value) or any(is_call_to(value, op) for op in PACKED_CALLS)


def bindings_of(func: relax.Function) -> list[relax.Binding]:
    """Return the bindings of a function in the order they run, branches not entered."""
    return [binding for block in func.body.blocks for binding in block.bindings]


def is_call_to(value: relax.Expr, op: str) -> bool:
    """Tell whether an expression calls the operator of that name."""
    return isinstance(value, relax.Call) and value.op == tvm.ir.Op.get(op)


def result_types(ty: tvm.ir.Type) -> list[relax.TensorType]:
    """Return the tensor types a call_tir writes, in order."""
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def static_bytes(ty: relax.TensorType) -> int | None:
    """Return a tensor's size in bytes, None where a dimension is symbolic."""
    if ty.shape is None or not all(isinstance(dim, IntImm) for dim in ty.shape):
        return None
    itemsize = (tvm.runtime.DataType(str(ty.dtype)).bits + 7) // 8
    return math.prod(int(dim.value) for dim in ty.shape) * itemsize
