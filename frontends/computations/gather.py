"""Reading at computed places. A place outside the tensor reads its nearest element, never beyond.

Negative indices count from the end.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import as_dtype, index


def within(place: Any, size: Any) -> Any:
    """Return an index as int64, counted from the front and limited to [0, size)."""
    place, size = as_dtype(place, "int64"), index(size)
    wrapped = tirx.Select(place < 0, place + size, place)
    return tirx.max(tirx.min(wrapped, size - 1), index(0))


def gather(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """Return slices along `axis`; the axis is replaced by the shape of `indices`."""
    rank = len(indices.shape)
    shape = [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]]

    def element(*at: Any) -> Any:
        place = within(indices(*at[axis : axis + rank]), data.shape[axis])
        return data(*at[:axis], place, *at[axis + rank :])

    return te.compute(shape, element, name="gather")


def gather_elements(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """Return one element for each index, at its own place but for `axis`."""

    def element(*at: Any) -> Any:
        place = within(indices(*at), data.shape[axis])
        return data(*at[:axis], place, *at[axis + 1 :])

    return te.compute(indices.shape, element, name="gather_elements")


def gather_nd(data: te.Tensor, indices: te.Tensor, batch: int) -> te.Tensor:
    """Return slices at index tuples (last axis of `indices`); `batch` leading axes are common."""
    width = int(indices.shape[-1])
    lead = len(indices.shape) - 1
    shape = [*indices.shape[:-1], *data.shape[batch + width :]]

    def element(*at: Any) -> Any:
        places = [within(indices(*at[:lead], k), data.shape[batch + k]) for k in range(width)]
        return data(*at[:batch], *places, *at[lead:])

    return te.compute(shape, element, name="gather_nd")


def reverse_sequences(x: te.Tensor, lengths: te.Tensor, time: int, batch: int) -> te.Tensor:
    """Reverse the first `lengths[b]` elements along axis `time` for each place of axis `batch`."""

    def element(*at: Any) -> Any:
        length = as_dtype(lengths(at[batch]), "int64")
        step = index(at[time])
        place = tirx.Select(step < length, length - 1 - step, step)
        return x(*at[:time], within(place, x.shape[time]), *at[time + 1 :])

    return te.compute(x.shape, element, name="reverse_sequences")
