"""Shapes computed by the program itself: small integer vectors, one element for each dimension.

Frontends read the result as symbols. `have` always lists the dimensions of the tensor that is
reshaped or padded, as expressions or integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, index, kernel, product, serial, when

NOTHING_LEFT = -(2**61)  # a size that cannot be
_CROP_ALL = -(2**60)  # more than any tensor has on an axis
Dim = Any  # an integer or a TIR expression


def reshaped_dims(wanted: te.Tensor, have: Sequence[Dim], copy_zeros: bool) -> te.Tensor:
    """Return the shape that `wanted` means for a reshape.

    Args:
        wanted: int64[n]; -1 stands for what the other dimensions leave.
        have: The tensor's dimensions.
        copy_zeros: 0 stands for the tensor's dimension at the same place.
    """
    rank = int(wanted.shape[0])

    def body(ins: list[Any], outs: list[Any]) -> None:
        known, rest = Scalar(1), Scalar(0)
        for place in range(rank):
            outs[0][place] = index(ins[0][place])
            if copy_zeros and place < len(have):
                with when(ins[0][place] == 0):
                    outs[0][place] = index(have[place])
            with when(outs[0][place] != -1):
                known.set(known() * outs[0][place])
        with when(known() > 0):
            rest.set(tirx.floordiv(product(have), tirx.max(known(), index(1))))
        with serial(rank) as place:
            with when(outs[0][place] == -1):
                outs[0][place] = rest()

    return kernel([wanted], [((rank,), "int64")], body, "reshaped_dims")[0]


def unsqueezed_dims(axes: te.Tensor, have: Sequence[Dim]) -> te.Tensor:
    """Return the shape with axes of size 1 at the places `axes` (int64[k]) of the result.

    `have` is not empty.
    """
    rank = len(have) + int(axes.shape[0])

    def body(ins: list[Any], outs: list[Any]) -> None:
        _mark(ins[0], int(axes.shape[0]), rank, outs[1])
        _list_dims(outs[2], have)
        following = Scalar(0)
        with serial(rank) as place:
            outs[0][place] = index(1)
            with when(outs[1][place] == 0):
                # Axes listed twice leave more places than there are dimensions.
                outs[0][place] = outs[2][tirx.min(following(), len(have) - 1)]
                following.set(following() + 1)

    outputs = [((size,), "int64") for size in (rank, rank, len(have))]
    return kernel([axes], outputs, body, "unsqueezed_dims")[0]


def squeezed_dims(axes: te.Tensor, have: Sequence[Dim]) -> te.Tensor:
    """Return the shape without the axes `axes` (int64[k], no axis twice)."""
    rank = len(have)
    left = rank - int(axes.shape[0])

    def body(ins: list[Any], outs: list[Any]) -> None:
        _mark(ins[0], int(axes.shape[0]), rank, outs[1])
        _list_dims(outs[2], have)
        following = Scalar(0)
        with serial(rank) as place:
            # Axes listed twice would leave more dimensions than there is room for.
            with when(tirx.all(outs[1][place] == 0, following() < left)):
                outs[0][following()] = outs[2][place]
                following.set(following() + 1)

    outputs = [((size,), "int64") for size in (left, rank, rank)]
    return kernel([axes], outputs, body, "squeezed_dims")[0]


def pads_of_all_axes(pads: te.Tensor, axes: te.Tensor, rank: int) -> te.Tensor:
    """Spread the pads of some axes over all: int64[2 * k] and int64[k] to int64[2 * rank].

    The number k may be a symbol.

    The first half is what is added in front of each axis, the second behind. An axis that does not
    exist makes the first size negative.
    """
    count = index(axes.shape[0])

    def body(ins: list[Any], outs: list[Any]) -> None:
        with serial(2 * rank) as place:
            outs[0][place] = index(0)
        exist = Scalar(1)
        with serial(count) as number:
            axis = Scalar(_from_front(ins[1][number], rank))
            with when(tirx.any(axis() < 0, axis() >= rank)):
                exist.set(0)
            with when(tirx.all(axis() >= 0, axis() < rank)):
                outs[0][axis()] = index(ins[0][number])
                outs[0][axis() + rank] = index(ins[0][number + count])
        with when(exist() == 0):
            outs[0][0] = index(_CROP_ALL)

    return kernel([pads, axes], [((2 * rank,), "int64")], body, "pads_of_all_axes")[0]


def padded_dims(pads: te.Tensor, have: Sequence[Dim], *, continued: bool) -> te.Tensor:
    """Return the shape of a padded tensor; `pads` (int64[2 * rank]) may be negative.

    A size is negative where more is cropped than there is. If what is left is `continued`, the size
    of an axis that would grow from nothing is `NOTHING_LEFT`.
    """
    rank = len(have)

    def body(ins: list[Any], outs: list[Any]) -> None:
        for place, dim in enumerate(have):
            before, after = (Scalar(index(ins[0][p])) for p in (place, rank + place))
            outs[0][place] = before() + index(dim) + after()
            if continued:
                left = index(dim) + tirx.min(before(), 0) + tirx.min(after(), 0)
                with when(tirx.all(left < 1, outs[0][place] > 0)):
                    outs[0][place] = index(NOTHING_LEFT)

    return kernel([pads], [((rank,), "int64")], body, "padded_dims")[0]


def _mark(axes: Any, count: int, rank: int, marks: Any) -> None:
    """State: marks[axis] is 1 for the axes listed, which may count from the end, else 0."""
    with serial(rank) as place:
        marks[place] = index(0)
    with serial(count) as number:
        axis = Scalar(_from_front(axes[number], rank))
        with when(tirx.all(axis() >= 0, axis() < rank)):
            marks[axis()] = index(1)


def _list_dims(room: Any, dims: Sequence[Dim]) -> None:
    for place, dim in enumerate(dims):
        room[place] = index(dim)


def _from_front(axis: Any, rank: int) -> Any:
    return tirx.Select(index(axis) < 0, index(axis) + rank, index(axis))
