"""Pad a tensor by widths that may be negative, symbolic or known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

MODES = ("constant", "reflect", "edge", "wrap")


def pad(
    x: te.Tensor, before: Sequence[Any], dims: Sequence[Any], mode: str, fill: Any
) -> te.Tensor:
    """Return `x` moved by `before` into a tensor of shape `dims`.

    Args:
        x: The tensor.
        before: What is added in front of each axis; negative widths cut.
        dims: The result's shape.
        mode: One of `MODES`; "reflect" does not repeat the border, "wrap" continues with the
            other end.
        fill: Scalar of x's dtype for "constant".
    """
    sizes = list(x.shape)

    def value(*index: Any) -> Any:
        inner = [place - width for place, width in zip(index, before, strict=True)]
        if mode != "constant":
            return x(*(_source(i, size, mode) for i, size in zip(inner, sizes, strict=True)))
        inside = [tirx.all(i >= 0, i < size) for i, size in zip(inner, sizes, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), x(*inner), fill) if inside else x()

    return te.compute(tuple(dims), value, name="pad")


def _source(place: Any, length: Any, mode: str) -> Any:
    if mode == "edge":
        return tirx.max(tirx.min(place, length - 1), 0)
    if mode == "wrap":
        return tirx.floormod(place, length)
    period = tirx.max(2 * (length - 1), 1)
    folded = tirx.floormod(place, period)
    return tirx.min(folded, period - folded)
