"""Operands that a kernel reads in place, where they lie transposed or within a wider tensor.

A view stands for a tensor in a computation: it has a shape and is read at an index. It is no stage
of its own, so that nothing is copied and no schedule has to inline it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te

Place = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class OperandView:
    """A tensor of `shape` whose element at an index is `source` at `place(index)`."""

    source: te.Tensor | OperandView
    shape: tuple[Any, ...]
    place: Place

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.source.dtype

    def __call__(self, *index: Any) -> Any:
        """Return the element at an index, one expression for each axis."""
        return self.source(*self.place(index))

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """Return the element at an index, as a call does."""
        return self(*index)


def transposed(source: te.Tensor | OperandView, order: Sequence[int]) -> OperandView:
    """Return `source` with its axes in `order`, as R.permute_dims gives it."""
    axes = list(order)

    def place(index: Sequence[Any]) -> list[Any]:
        return [index[axes.index(axis)] for axis in range(len(axes))]

    return OperandView(source, tuple(source.shape[axis] for axis in axes), place)


def sliced(source: te.Tensor | OperandView, axis: int, begin: int, end: int) -> OperandView:
    """Return `source[..., begin:end, ...]` along one axis."""

    def place(index: Sequence[Any]) -> list[Any]:
        return [i + begin if a == axis and begin else i for a, i in enumerate(index)]

    shape = [end - begin if a == axis else size for a, size in enumerate(source.shape)]
    return OperandView(source, tuple(shape), place)
