"""Which slice of which merged tensor each result becomes, for passes that merge parallel operators.

f(x, A), f(x, B)   ->   y = f(x, [A B]),  y[0 : |A|], y[|A| : |A| + |B|]

The groups are chosen before a function is rewritten; a rewriter then looks its results up here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import tvm
from tvm import relax


class Mergeable(Protocol):
    """An operator with constant weights, and what follows it, that others of its tensor join."""

    @property
    def result(self) -> relax.Var:
        """The last variable, which others read."""

    @property
    def width(self) -> int:
        """How long the result is along the merged axis."""

    @property
    def inner(self) -> tuple[relax.Var, ...]:
        """The variables before the result, which the merged operator makes needless."""


M = TypeVar("M", bound=Mergeable)


@dataclass(frozen=True)
class Part(Generic[M]):
    """The place of one result in the tensor merged from `group`: elements begin to end."""

    group: list[M]
    begin: int
    end: int

    def cut_from(self, whole: relax.Var, axis: int) -> tvm.ir.Call:
        """Return the slice of the merged tensor that holds the result."""
        return relax.op.strided_slice(whole, [axis], [self.begin], [self.end], [1])


class MergePlan(Generic[M]):
    """The parts by their results, and the `absorbed` variables that need not be computed."""

    def __init__(self) -> None:
        self.parts: dict[relax.Var, Part[M]] = {}
        self.absorbed: set[relax.Var] = set()
        self.groups = 0

    def take(self, group: list[M]) -> None:
        """Plan to merge these operators, one after the other along the merged axis."""
        begin = 0
        for member in group:
            end = begin + member.width
            self.parts[member.result] = Part(group, begin, end)
            self.absorbed.update(member.inner)
            begin = end
        self.groups += 1
