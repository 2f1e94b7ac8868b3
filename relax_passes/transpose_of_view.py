"""A view of a transpose, written as a transpose of a view.

    reshape(permute(x, p), s) = permute(reshape(x, t), q)

holds where each axis of `s` is a run of axes that lie side by side in x as well, or has extent 1.
Products read a transposed operand in place, and two transposes merge, but not through a view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx

from relax_passes.layout.blocked import is_one

Dims = Sequence[tirx.Expr]


@dataclass(frozen=True)
class TransposedView:
    """The shape to view x in, and the order of its axes afterwards."""

    shape: list[tirx.Expr]
    order: list[int]


def transpose_of_view(source: Dims, order: Sequence[int], wanted: Dims) -> TransposedView | None:
    """Return `reshape(permute(x, order), wanted)` as a transpose of a view.

    Args:
        source: The sizes of x, symbolic ones included.
        order: The axes of x in the order of the transpose.
        wanted: The sizes of the view.

    Returns:
        None where an axis of the view mixes axes that are apart in x.
    """
    moved = [axis for axis in order if not is_one(source[axis])]
    runs = _runs([source[axis] for axis in moved], [d for d in wanted if not is_one(d)])
    if runs is None:
        return None
    firsts, begin = [], 0  # where each run begins in x
    for length in runs:
        run = moved[begin : begin + length]
        if not _side_by_side(run, source):
            return None
        firsts.append(run[0])
        begin += length
    ones = [axis for axis, size in enumerate(wanted) if is_one(size)]
    kept = [axis for axis, size in enumerate(wanted) if not is_one(size)]
    # Axes of one element come first, and then the runs in their order in x.
    ranked = sorted(range(len(kept)), key=lambda place: firsts[place])
    place_of = {kept[at]: len(ones) + place for place, at in enumerate(ranked)}
    place_of |= {axis: place for place, axis in enumerate(ones)}
    shape = [wanted[axis] for axis in [*ones, *(kept[at] for at in ranked)]]
    return TransposedView(shape, [place_of[axis] for axis in range(len(wanted))])


def _runs(sizes: Dims, wanted: Dims) -> list[int] | None:
    """Return how many of `sizes` each wanted size is the product of, None if it is none."""
    runs, begin = [], 0
    for size in wanted:
        length = 1
        while begin + length <= len(sizes) and not _is_product(sizes[begin : begin + length], size):
            length += 1
        if begin + length > len(sizes):
            return None
        runs.append(length)
        begin += length
    return runs if begin == len(sizes) else None


def _is_product(sizes: Dims, size: tirx.Expr) -> bool:
    if len(sizes) == 1:
        return bool(tvm_ffi.structural_equal(sizes[0], size))
    if not all(isinstance(s, tirx.IntImm) for s in (*sizes, size)):
        return False
    return math.prod(int(s) for s in sizes) == int(size)


def _side_by_side(axes: Sequence[int], source: Dims) -> bool:
    """Tell whether axes follow each other in x, but for axes of one element."""
    return all(
        a < b and all(is_one(size) for size in source[a + 1 : b])
        for a, b in zip(axes, axes[1:], strict=False)
    )
