"""Move the elements of shape values: what Gather, Concat, Slice and views do to them.

An element may be a dimension or a ratio: NumPy moves either, as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frontends.dims import is_static

Arrays = Sequence[Any]


class Unknown(Exception):
    """The result depends on a symbol in a way that a shape value cannot express."""


def known_integers(array: np.ndarray | None) -> list[int] | None:
    """Return the elements as integers; raise `Unknown` if one is symbolic."""
    if array is None:
        return None
    if not all(is_static(item) for item in array.flat):
        raise Unknown
    return [int(item) for item in array.flat]


def as_objects(result: Any) -> np.ndarray:
    """Return a NumPy object array, scalars included."""
    if isinstance(result, np.ndarray) and result.dtype == object:
        return result
    array = np.empty((), dtype=object)
    array[()] = result
    return array


def _gather(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    known_integers(arrays[1])
    return as_objects(np.take(arrays[0], arrays[1].astype("int64"), axis=attributes.get("axis", 0)))


def _concat(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    return np.concatenate(arrays, axis=attributes.get("axis", 0))


def _slice(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    def given(place: int, name: str) -> list[int] | None:
        if len(arrays) > place and arrays[place] is not None:
            return known_integers(arrays[place])
        return list(attributes[name]) if name in attributes else None

    starts, ends = given(1, "starts"), given(2, "ends")
    if starts is None or ends is None:
        raise Unknown
    axes = given(3, "axes") or list(range(len(starts)))
    steps = given(4, "steps") or [1] * len(starts)
    result = arrays[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = result.shape[axis]
        stop: int | None = end
        if step < 0 and end < -length:
            stop = None  # before the first element, which Python would count from the back
        places = [slice(None)] * result.ndim
        places[axis] = slice(start, stop, step)
        result = result[tuple(places)]
    return as_objects(result)


def _squeeze(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    axes = known_integers(arrays[1]) if len(arrays) > 1 else attributes.get("axes")
    return as_objects(np.squeeze(arrays[0], None if axes is None else tuple(axes)))


def _unsqueeze(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    axes = known_integers(arrays[1]) if len(arrays) > 1 else attributes["axes"]
    return as_objects(np.expand_dims(arrays[0], tuple(axes or ())))


def _reshape(arrays: Arrays, attributes: dict[str, Any], arithmetic: Any) -> np.ndarray:
    return as_objects(arrays[0].reshape(known_integers(arrays[1])))


REARRANGING: dict[str, Callable[..., np.ndarray]] = {
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
}
