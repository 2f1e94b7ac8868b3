"""Over which leading axes a loop nest can run row by row, and what of each operand a row reads.

A *row* is one point of the first axes that all results share. A nest runs row by row if each block
writes at its own row and reads what other blocks wrote at its own row only: then all blocks of one
row can run before the next row starts. Maps have the whole result's axes as rows, a reduction along
the last axis those before it, a reduction to one number none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, Expr, IntImm, IterVar, PrimFunc, Var


@dataclass(frozen=True)
class Operand:
    """How a nest reads a parameter.

    `places` holds, for as many leading axes of the nest as all its reads use alone, which dimension
    of the operand each is: (0, 1) of x[i, j, k], and (1,) of x[k, i] in a nest over i and k.
    `whole` says that some read visits each element just once, so that reading the operand elsewhere
    too would be reading all of it again.
    """

    places: tuple[int, ...]
    whole: bool


@dataclass(frozen=True)
class RowSpace:
    """The leading axes a nest can run over, and what it reads and writes by parameter number.

    `strided` says that neighbours along some innermost axis are not neighbours in an operand.
    """

    rows: int
    operands: dict[int, Operand]
    results: tuple[int, ...]
    reductions: int
    strided: bool


def row_space(func: PrimFunc) -> RowSpace | None:
    """Return the row space of an unscheduled PrimFunc; None if a block is none it understands.

    Understood is a block that stores to one point of one buffer, with its kept axes first.
    """
    found: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, found.append), order="pre")
    blocks = [block for block in found if len(block.iter_vars) or block.name_hint != "root"]
    nests = [_read_block(block) for block in blocks]
    known = [nest for nest in nests if nest is not None]
    if not known or len(known) < len(nests):
        return None
    written = {nest.target for nest in known}
    operands: dict[int, Operand] = {}
    numbers = {param: number for number, param in enumerate(func.params)}
    for nest in known:
        for load in nest.loads:
            number = numbers.get(load.source)
            if number is None or load.source in written:
                continue
            places, whole = _places(load.indices, nest), _visits_all(load, nest)
            if number in operands:
                before = operands[number]
                places = places[: _common(places, before.places)]
                whole = whole or before.whole
            operands[number] = Operand(places, whole)
    return RowSpace(
        _shared_rows(known, written),
        operands,
        tuple(number for param, number in numbers.items() if param in written),
        sum(bool(nest.reduced) for nest in known),
        any(_is_strided(load, nest) for nest in known for load in nest.loads),
    )


def _shared_rows(nests: Sequence[_Nest], written: set[Var]) -> int:
    """Return over how many leading axes all nests can run together."""
    rows = min(len(nest.kept) for nest in nests)
    for nest in nests:
        rows = min(rows, _common(nests[0].extents, nest.extents))
        own = [load.indices for load in nest.loads if load.source in written]
        for indices in (nest.target_indices, *own):
            places = _places(indices, nest)
            rows = min(rows, _common(places, range(len(places))))
    return rows


@dataclass(frozen=True)
class _Nest:
    kept: list[Var]
    reduced: list[Var]
    extents: list[Expr]  # of the kept axes, then of the reduced ones
    target: Var
    target_indices: list[Expr]
    loads: list[TensorLoad]


def _read_block(block: SBlock) -> _Nest | None:
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    kept = [axis.var for axis in block.iter_vars if int(axis.iter_type) == IterVar.DataPar]
    reduced = [axis.var for axis in block.iter_vars if int(axis.iter_type) == IterVar.CommReduce]
    if kinds != sorted(kinds, key=lambda kind: kind != IterVar.DataPar):
        return None
    inner: list[SBlock] = []
    stores: list[BufferStore] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(
        block.body,
        [(SBlock, inner.append), (BufferStore, stores.append), (TensorLoad, loads.append)],
    )
    if len(kept) + len(reduced) < len(kinds) or inner or len(stores) != 1:
        return None
    (store,) = stores
    if not all(isinstance(index, Var | IntImm) for index in store.indices):
        return None
    extents = [axis.dom.extent for axis in block.iter_vars]
    return _Nest(kept, reduced, extents, store.buffer, list(store.indices), loads)


def _common(a: Sequence[object], b: Sequence[object]) -> int:
    """Return how many leading entries are equal."""
    count = 0
    for left, right in zip(a, b, strict=False):
        if not tvm_ffi.structural_equal(left, right):
            break
        count += 1
    return count


def _places(indices: Sequence[Expr], nest: _Nest) -> tuple[int, ...]:
    """Return the dimensions that the leading axes of a nest index alone, until one does not."""
    places = []
    for number, (axis, extent) in enumerate(zip(nest.kept, nest.extents, strict=False)):
        found = [at for at, index in enumerate(indices) if index.same_as(axis)]
        if not found and _is(extent, 1):
            at_zero = number < len(indices) and _is(indices[number], 0)
            found = [number if at_zero else -1]
        if len(found) != 1:
            break
        places.append(found[0])
    return tuple(places)


def _is(expr: Expr, value: int) -> bool:
    return isinstance(expr, IntImm) and int(expr) == value


def _is_strided(load: TensorLoad, nest: _Nest) -> bool:
    """Tell whether a nest's innermost axis of more than one step moves along another dimension."""
    axes = [
        axis
        for axis, extent in zip([*nest.kept, *nest.reduced], nest.extents, strict=True)
        if not _is(extent, 1)
    ]
    long = [at for at, size in enumerate(load.source.shape) if not _is(size, 1)]
    used: list[Var] = []
    for at in long[:-1]:
        tvm_ffi.structural_walk(load.indices[at], (Var, used.append), order="pre")
    return bool(axes) and any(axes[-1].same_as(var) for var in used)


def _visits_all(load: TensorLoad, nest: _Nest) -> bool:
    """Tell whether the block's axes visit each element of the buffer once or in one order."""
    extents = dict(zip([*nest.kept, *nest.reduced], nest.extents, strict=True))
    left = set(extents)
    for index, size in zip(load.indices, load.source.shape, strict=True):
        if isinstance(index, IntImm):
            if not _is(size, 1):
                return False
        elif index in left and tvm_ffi.structural_equal(extents[index], size):
            left.remove(index)
        else:
            return False
    return True
