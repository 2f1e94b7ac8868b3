"""Pad a tensor by widths that may be negative, symbolic or known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

MODES = ("constant", "reflect", "edge", "wrap")


def pad(
    x: te.Tensor,
    before: Sequence[Any],
    after: Sequence[Any],
    mode: str,
    fill: Any,
    dims: Sequence[Any] | None = None,
) -> te.Tensor:
    """Return `x` with elements added around it, or cut off.

    Args:
        x: The tensor. But for "constant", each axis that grows has an element left after cutting.
        before: What is added in front of each axis; negative widths cut.
        after: What is added behind each axis.
        mode: One of `MODES`; "reflect" does not repeat the border, "wrap" continues with the
            other end. What was cut off is not continued with.
        fill: Scalar of x's dtype for "constant".
        dims: The result's shape, where it has names.
    """
    sizes = list(x.shape)
    spans = [
        _Span(size, width, behind) for size, width, behind in zip(sizes, before, after, strict=True)
    ]

    def value(*index: Any) -> Any:
        if mode != "constant":
            return x(*(span.source(place, mode) for span, place in zip(spans, index, strict=True)))
        inner = [place - width for place, width in zip(index, before, strict=True)]
        inside = [tirx.all(i >= 0, i < size) for i, size in zip(inner, sizes, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), x(*inner), fill) if inside else x()

    if dims is None:
        dims = [b + s + a for b, s, a in zip(before, sizes, after, strict=True)]
    return te.compute(tuple(dims), value, name="pad")


class _Span:
    """What is left of an axis after cutting, and what is added in front of it."""

    def __init__(self, size: Any, before: Any, after: Any) -> None:
        self._first = _least_zero(-before)
        self._length = size - self._first - _least_zero(-after)
        self._added = _least_zero(before)

    def source(self, place: Any, mode: str) -> Any:
        """Return the place in `x` of a place in the result."""
        inner = place - self._added
        if mode == "edge":
            return self._first + tirx.max(tirx.min(inner, self._length - 1), 0)
        if mode == "wrap":
            return self._first + tirx.floormod(inner, tirx.max(self._length, 1))
        period = tirx.max(2 * (self._length - 1), 1)
        folded = tirx.floormod(inner, period)
        return self._first + tirx.min(folded, period - folded)


def _least_zero(width: Any) -> Any:
    return max(width, 0) if isinstance(width, int) else tirx.max(width, 0)
