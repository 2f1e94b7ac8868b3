"""Where a slice begins, how it steps, how much it takes; slices written from those numbers."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from relax_passes.algebra.rule import Declined

R = relax.op
Dim = Any  # an integer, or an expression of symbols


class Slice:
    """A slice: for each axis where it begins, its stride and its extent.

    Only axes that are cut need to be of static size.

    Args:
        call: A call of `R.strided_slice`.
        backwards: Whether strides may be negative.

    Raises:
        Declined: If a bound or a size of an axis that is cut is symbolic, or a stride negative.
    """

    def __init__(self, call: tvm.ir.Call, *, backwards: bool = False) -> None:
        self.source = call.args[0]
        self.shape, self.extent = sizes(call.args[0]), sizes(call)
        if len(call.args) < 4:
            raise Declined("its bounds are not known")
        rank = len(self.shape)
        self.begin, self.stride = [0] * rank, [1] * rank
        lists = [[_number(v) for v in _fields(arg)] for arg in call.args[1:]]
        steps = lists[3] if len(lists) > 3 else [1] * len(lists[0])
        self._named = {axis % rank for axis in lists[0]}
        for axis, begin, stride in zip(lists[0], lists[1], steps, strict=True):
            if stride < 1 and not backwards:
                raise Declined("a stride is negative")
            axis %= rank
            size = static(self.shape[axis])
            static(self.extent[axis])
            begin = begin + size if begin < 0 else begin
            last = size if stride > 0 else size - 1
            self.begin[axis], self.stride[axis] = min(max(begin, 0), last), stride

    @property
    def axes(self) -> list[int]:
        """Return the axes that it changes."""
        return [
            axis
            for axis in sorted(self._named)
            if self.extent[axis] != self.shape[axis] or self.begin[axis] or self.stride[axis] != 1
        ]

    def end(self, axis: int) -> int:
        """Return where it ends along an axis that is cut: one past the last element."""
        return self.begin[axis] + max((static(self.extent[axis]) - 1) * self.stride[axis] + 1, 0)

    def is_followed_by(self, other: Slice, axis: int) -> bool:
        """Tell whether `other` takes what comes next along `axis`, and the same of other axes."""
        if not self.source.same_as(other.source) or axis not in self._named & other._named:
            return False
        if self.stride[axis] != 1 or other.stride[axis] != 1:
            return False
        cut = [a for a in {*self.axes, *other.axes} if a != axis]
        return self.end(axis) == other.begin[axis] and all(
            (self.begin[a], self.stride[a], self.extent[a])
            == (other.begin[a], other.stride[a], other.extent[a])
            for a in cut
        )


def sizes(value: relax.Expr) -> list[Dim]:
    """Return the sizes of a tensor, as integers where they are static.

    Raises:
        Declined: If they are not known.
    """
    dims = getattr(getattr(value.ty, "shape", None), "values", None)
    if dims is None:
        raise Declined("a size is not known")
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in dims]


def static(size: Dim) -> int:
    """Return a size that is an integer.

    Raises:
        Declined: If it is symbolic.
    """
    if not isinstance(size, int):
        raise Declined("a size is symbolic")
    return size


def _fields(arg: relax.Expr) -> list[relax.Expr]:
    if not isinstance(arg, relax.Tuple):
        raise Declined("its bounds are not known")
    return list(arg.fields)


def _number(value: relax.Expr) -> int:
    number = getattr(value, "value", None)
    if not isinstance(number, int):
        raise Declined("its bounds are symbolic")
    return number


def make_slice(
    x: relax.Expr, axes: list[int], begin: list[int], extent: list[Dim], stride: list[int]
) -> relax.Expr:
    """Return `extent[a]` elements along each of `axes`, from `begin[a]` on."""
    ends = [_end(begin[a], static(extent[a]), stride[a]) for a in axes]
    # A negative end counts from behind: before the first element is one size further.
    lows = [static(sizes(x)[a]) for a in axes]
    ends = [end - low if end < 0 else end for end, low in zip(ends, lows, strict=True)]
    return R.strided_slice(x, axes, [begin[a] for a in axes], ends, [stride[a] for a in axes])


def _end(begin: int, count: int, stride: int) -> int:
    return begin + (count - 1) * stride + (1 if stride > 0 else -1) if count else begin
