"""The distinct slices of a tensor: first grouped, then written out, as their number is a size."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, divided, index, kernel, serial, when
from frontends.computations.sort import merge_sort, precedes


def group_equal(x: te.Tensor) -> list[te.Tensor]:
    """Sort the slices along the middle axis and number the groups of equal ones.

    Slices are compared element by element in row-major order; NaN equals NaN.

    Args:
        x: (outer, n, inner), any number type.

    Returns:
        The slices in order, int64 (2, n), of which row 0 counts; the group of each place in that
        order, int64 (n,); the number of groups, int64 (1,).
    """
    outer, n, inner = x.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, (order, group, count) = ins[0], outs
        state = Scalar(0)  # of a comparison: 0 equal so far, 1 before, 2 after
        at = Scalar(0)

        def compare(a: Any, b: Any) -> None:
            state.set(0)
            at.set(0)
            with T.While(tirx.all(state() == 0, at() < outer * inner)):
                o, i = divided(at(), inner)
                with when(precedes(data[o, a, i], data[o, b, i])):
                    state.set(1)
                with when(precedes(data[o, b, i], data[o, a, i])):
                    state.set(2)
                at.set(at() + 1)

        def comes_before(a: Any, b: Any) -> Any:
            compare(a, b)
            return state() == 1

        merge_sort(n, lambda side, j: (side, j), order, comes_before)
        groups = Scalar(0)
        with serial(n) as j:
            state.set(1)
            with when(j > 0):
                compare(order[0, j - 1], order[0, j])
            with when(state() != 0):
                groups.set(groups() + 1)
            group[j] = groups() - 1
        count[0] = groups()

    shapes = [((2, n), "int64"), ((n,), "int64"), ((1,), "int64")]
    return kernel([x], shapes, body, "group_equal")


def describe_groups(
    order: te.Tensor, group: te.Tensor, count: Any, *, is_sorted: bool
) -> list[te.Tensor]:
    """Return where each group begins, the group of each slice, and the groups' sizes.

    Args:
        order: The slices in order, (2, n), as `group_equal` gives them.
        group: The group of each place in that order, (n,).
        count: The number of groups.
        is_sorted: Whether groups keep that order; else they are numbered as they first appear.

    Returns:
        int64 (count,), (n,) and (count,), and scratch memory.
    """
    n = group.shape[0]

    def body(ins: list[Any], outs: list[Any]) -> None:
        items, groups = ins
        first, inverse, sizes, number = outs
        with serial(count) as g:
            sizes[g] = index(0)
            number[g] = g if is_sorted else index(-1)
        with serial(n) as j:
            inverse[items[0, j]] = groups[j]
        if not is_sorted:
            fresh = Scalar(0)
            with serial(n) as j:
                with when(number[inverse[j]] < 0):
                    number[inverse[j]] = fresh()
                    fresh.set(fresh() + 1)
        with serial(n) as j:
            own = Scalar(number[inverse[j]])
            with when(sizes[own()] == 0):
                first[own()] = j
            sizes[own()] = sizes[own()] + 1
            inverse[j] = own()

    shapes = [((count,), "int64"), ((n,), "int64"), ((count,), "int64"), ((count,), "int64")]
    return kernel([order, group], shapes, body, "describe_groups")
