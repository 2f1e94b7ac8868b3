"""Shapes computed by the program itself: small integer vectors, one element for each dimension.

Frontends read the result as symbols. `have` always lists the dimensions of the tensor that is
reshaped or padded, as expressions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

Expr = Any  # a TIR expression of dtype int64


def reshaped_dims(wanted: te.Tensor, have: Sequence[Expr], copy_zeros: bool) -> te.Tensor:
    """Return the shape that `wanted` means for a reshape.

    Args:
        wanted: int64[n]; -1 stands for what the other dimensions leave.
        have: The tensor's dimensions.
        copy_zeros: 0 stands for the tensor's dimension at the same place.
    """
    dims, have = _elements(wanted), _wide(have)
    if copy_zeros:
        dims = [
            tirx.Select(dim == 0, have[place], dim) if place < len(have) else dim
            for place, dim in enumerate(dims)
        ]
    known = _product([tirx.Select(dim == -1, _number(1), dim) for dim in dims])
    rest = tirx.floordiv(_product(have), tirx.max(known, 1))
    rest = tirx.Select(known == 0, _number(0), rest)
    return _vector([tirx.Select(dim == -1, rest, dim) for dim in dims], "reshaped_dims")


def unsqueezed_dims(axes: te.Tensor, have: Sequence[Expr]) -> te.Tensor:
    """Return the shape with axes of size 1 at the places `axes` (int64[k]) of the result."""
    have = _wide(have)
    rank = len(have) + int(axes.shape[0])
    inserted = _marks(axes, rank)
    dims = []
    for place in range(rank):
        source = _number(place) - _count(inserted[:place])
        dims.append(tirx.Select(inserted[place], _number(1), _pick(have, source)))
    return _vector(dims, "unsqueezed_dims")


def squeezed_dims(axes: te.Tensor, have: Sequence[Expr]) -> te.Tensor:
    """Return the shape without the axes `axes` (int64[k], no axis twice)."""
    rank, have = len(have), _wide(have)
    dropped = _marks(axes, rank)
    dims = []
    for target in range(rank - int(axes.shape[0])):
        found = _number(1)
        for place in range(rank):
            lands = (_number(place) - _count(dropped[:place])) == target
            found = tirx.Select(tirx.all(tirx.Not(dropped[place]), lands), have[place], found)
        dims.append(found)
    return _vector(dims, "squeezed_dims")


def pads_of_all_axes(pads: te.Tensor, axes: te.Tensor, rank: int) -> te.Tensor:
    """Spread the pads of some axes over all: int64[2 * k] and int64[k] to int64[2 * rank].

    The first half is what is added in front of each axis, the second behind.
    """
    count = int(axes.shape[0])
    own = [tirx.Select(axis < 0, axis + rank, axis) for axis in _elements(axes)]
    given = _elements(pads)
    spread = []
    for side in range(2):
        for place in range(rank):
            parts = [
                tirx.Select(axis == place, given[side * count + number], _number(0))
                for number, axis in enumerate(own)
            ]
            spread.append(functools.reduce(lambda a, b: a + b, parts, _number(0)))
    return _vector(spread, "pads")


def padded_dims(pads: te.Tensor, have: Sequence[Expr]) -> te.Tensor:
    """Return the shape of a padded tensor; `pads` (int64[2 * rank]) may be negative."""
    rank, widths, have = len(have), _elements(pads), _wide(have)
    dims = [
        tirx.max(widths[place] + dim + widths[rank + place], 0) for place, dim in enumerate(have)
    ]
    return _vector(dims, "padded_dims")


def _vector(values: Sequence[Expr], name: str) -> te.Tensor:
    return te.compute((len(values),), lambda i: _pick(values, i), name=name)


def _pick(values: Sequence[Expr], place: Expr) -> Expr:
    """Return values[place]; the last one where `place` is beyond it, 1 if there is none."""
    if not values:
        return _number(1)
    chosen = values[-1]
    for number in range(len(values) - 2, -1, -1):
        chosen = tirx.Select(place == number, values[number], chosen)
    return chosen


def _elements(vector: te.Tensor) -> list[Expr]:
    return [vector(number).astype("int64") for number in range(int(vector.shape[0]))]


def _wide(dims: Sequence[Expr]) -> list[Expr]:
    """Return dimensions as int64 expressions, the static ones included."""
    return [_number(dim) if isinstance(dim, int) else dim.astype("int64") for dim in dims]


def _marks(axes: te.Tensor, rank: int) -> list[Expr]:
    """Tell of each axis whether it is in `axes`, which may count from the end."""
    own = [tirx.Select(axis < 0, axis + rank, axis) for axis in _elements(axes)]
    return [
        functools.reduce(tirx.any, [axis == place for axis in own], tirx.const(False, "bool"))
        for place in range(rank)
    ]


def _count(marks: Sequence[Expr]) -> Expr:
    return functools.reduce(lambda a, b: a + b, [m.astype("int64") for m in marks], _number(0))


def _product(values: Sequence[Expr]) -> Expr:
    return functools.reduce(lambda a, b: a * b, values, _number(1))


def _number(value: int) -> Expr:
    return tirx.const(value, "int64")
