"""How a tensor that is broadcast to one shape looks where that shape is viewed as another.

A view groups axes: (2, 3, 8) and (6, 8) have the groups (2, 3) | (6) and 8 | 8. A tensor that has
all axes of a group, or none, can be viewed along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tvm import tirx

from relax_passes.analysis.definitions import equal_sizes

Size: TypeAlias = tirx.Expr | int
Group: TypeAlias = tuple[list[Size], list[Size]]


def viewed_shape(
    operand: Sequence[Size], shape: Sequence[Size], view: Sequence[Size]
) -> list[Size] | None:
    """Return the shape in which `operand` broadcasts to `view` as it did to `shape`.

    Args:
        operand: Sizes of a tensor that broadcasts to `shape`; without the axes it lacks in front.
        shape: What it is broadcast to, symbolic sizes included.
        view: The sizes of the same elements in another view.

    Returns:
        As many sizes as `view` has, but for the groups of axes that the operand lacks in front;
        None where the operand has a part of the axes that the view groups.
    """
    groups = _groups(list(shape), list(view))
    if groups is None or len(operand) > len(shape):
        return None
    lacks = len(shape) - len(operand)
    padded: list[Size] = [1] * lacks + list(operand)
    seen: list[Size] = []
    for before, after in groups:
        mine, padded = padded[: len(before)], padded[len(before) :]
        lacks -= len(before)
        if not seen and lacks >= 0:
            continue  # all axes of the group are among those the operand lacks
        if all(equal_sizes(size, 1) for size in mine):
            seen += [1] * len(after)
        elif all(map(equal_sizes, mine, before)):
            seen += after
        else:
            return None
    return seen


def _groups(shape: list[Size], view: list[Size]) -> list[Group] | None:
    """Return runs of axes of both shapes that hold the same elements, as short as can be."""
    groups: list[Group] = []
    while shape or view:
        group = _first_group(shape, view)
        if group is None:
            return None
        groups.append(group)
        shape, view = shape[len(group[0]) :], view[len(group[1]) :]
    return groups


def _first_group(shape: list[Size], view: list[Size]) -> Group | None:
    if shape and view and equal_sizes(shape[0], view[0]):
        return [shape[0]], [view[0]]
    if shape and equal_sizes(shape[0], 1):
        return [shape[0]], []
    if view and equal_sizes(view[0], 1):
        return [], [view[0]]
    left = right = 0
    products = [1, 1]
    while not left or not right or products[0] != products[1]:
        smaller = 0 if not left or (right and products[0] < products[1]) else 1
        sizes, at = (shape, left) if smaller == 0 else (view, right)
        if at >= len(sizes) or not isinstance(sizes[at], int | tirx.IntImm):
            return None
        products[smaller] *= int(sizes[at])
        left, right = (left + 1, right) if smaller == 0 else (left, right + 1)
    return shape[:left], view[:right]
