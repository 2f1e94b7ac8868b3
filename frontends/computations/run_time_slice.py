"""Slices whose starts, ends, axes or steps are known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, index, kernel, serial, when

# A longer step selects one element, as this one does, and -(-(2**63)) is no int64.
_LONGEST = 2**47
# A count that whoever reads it as a size refuses.
INVALID = -1


def plan_slice(
    starts: te.Tensor,
    ends: te.Tensor,
    axes: te.Tensor | None,
    steps: te.Tensor | None,
    have: Sequence[Any],
) -> list[te.Tensor]:
    """Return count, first index and step of each axis: three int64[rank].

    Bounds may count from the end and lie outside; they are clamped as ONNX's Slice says. A step of
    0 and an axis that is given twice or does not exist give a count of `INVALID`.

    Args:
        starts: [k], first indices; k may be a symbol.
        ends: [k], indices not reached.
        axes: [k], the axes sliced; the first k axes by default.
        steps: [k]; 1 by default.
        have: The tensor's dimensions.
    """
    rank, number_of_axes = len(have), index(starts.shape[0])
    given = [tensor for tensor in (starts, ends, axes, steps) if tensor is not None]

    def body(ins: list[Any], outs: list[Any]) -> None:
        counts, firsts, strides = outs
        for place, dim in enumerate(have):
            counts[place], firsts[place], strides[place] = index(dim), index(0), index(1)
        with serial(number_of_axes) as number:
            axis = index(number)
            if axes is not None:
                axis = _from_front(index(ins[2][number]), index(rank))
            chosen = Scalar(axis)
            with when(tirx.all(chosen() >= 0, chosen() < rank)):
                length = Scalar(counts[chosen()])
                given_step = index(1) if steps is None else index(ins[-1][number])
                step = Scalar(tirx.max(tirx.min(given_step, _LONGEST), -_LONGEST))
                forward = step() > 0
                highest = tirx.Select(forward, length(), length() - 1)
                lowest = tirx.Select(forward, index(0), index(-1))
                start = _from_front(index(ins[0][number]), length())
                end = _from_front(index(ins[1][number]), length())
                first = Scalar(tirx.max(tirx.min(start, highest), index(0)))
                last = Scalar(tirx.max(tirx.min(end, highest), lowest))
                span = Scalar(tirx.Select(forward, last() - first(), first() - last()))
                stride = tirx.max(tirx.Select(forward, step(), -step()), index(1))
                count = Scalar(tirx.max(tirx.floordiv(span() + stride - 1, stride), index(0)))
                # An axis that was refused stays so.
                counts[chosen()] = tirx.Select(length() > 0, count(), length())
                firsts[chosen()] = first()
                strides[chosen()] = step()
                with when(step() == 0):
                    counts[chosen()] = index(INVALID)
                if axes is not None:
                    with serial(number) as earlier:
                        before = _from_front(index(ins[2][earlier]), index(rank))
                        with when(before == chosen()):
                            counts[chosen()] = index(INVALID)
            with when(tirx.any(chosen() < 0, chosen() >= rank)):
                counts[0] = index(INVALID)

    shapes = [((rank,), "int64")] * 3
    return list(kernel(given, shapes, body, "plan_slice"))


def take_slice(
    x: te.Tensor, firsts: te.Tensor, strides: te.Tensor, counts: Sequence[Any]
) -> te.Tensor:
    """Return x[first : : stride], `counts` elements along each axis, as `plan_slice` found them."""
    return te.compute(
        list(counts),
        lambda *i: x(*(firsts(axis) + p * strides(axis) for axis, p in enumerate(i))),
        name="take_slice",
    )


def _from_front(bound: Any, length: Any) -> Any:
    return tirx.Select(bound < 0, bound + length, bound)
