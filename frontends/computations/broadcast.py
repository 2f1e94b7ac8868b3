"""Broadcasting that Relax has no operator for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def combined(
    combine: Callable[[Any, Any], Any], x: te.Tensor, y: te.Tensor, dims: Sequence[Any]
) -> te.Tensor:
    """Return `combine` of each two elements of tensors that broadcast to `dims`.

    Args:
        combine: Makes an element of the result of one of `x` and one of `y`.
        x: An axis of its is broadcast where the size is known to be 1.
        y: The same.
        dims: The shape of the result.
    """

    def read(t: te.Tensor, at: tuple[Any, ...]) -> Any:
        own = zip(t.shape, at[len(at) - len(t.shape) :], strict=True)
        return t(*(0 if _is_one(size) else place for size, place in own))

    return te.compute(tuple(dims), lambda *at: combine(read(x, at), read(y, at)), name="combine")


def _is_one(size: Any) -> bool:
    return isinstance(size, tirx.IntImm) and int(size.value) == 1
