"""Broadcast a tensor whose sizes are not known to be 1 or more before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index


def broadcast_loosely(x: te.Tensor, dims: Sequence[Any]) -> te.Tensor:
    """Return `x` broadcast to `dims`; Relax takes symbolic sizes as not 1.

    Args:
        x: Each of its sizes is 1 or the one of `dims`, counted from the last axis.
        dims: The shape of the result, of at least as many axes.
    """
    added = len(dims) - len(x.shape)

    def element(*place: Any) -> Any:
        own = zip(x.shape, place[added:], strict=True)
        return x[tuple(tirx.Select(size == 1, index(0), index(at)) for size, at in own)]

    return te.compute(dims, element, name="expand")
