"""The bytes that a planned function's tensor has, and which of them have been written."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import relax

Span = tuple[int, int]  # bytes of a tensor: first, and the one after the last


def meet(one: Span, other: Span) -> bool:
    """Tell whether two spans share a byte."""
    return one[0] < other[1] and other[0] < one[1]


@dataclass
class ArenaTensor:
    """A run of bytes that was allocated, its life, and what of it has been written.

    `storage` is None for a tensor from the run-time pool, and for one that is `fixed`: a parameter,
    or all constants together.
    """

    name: str
    storage: relax.Var | None
    offset: int
    size: int
    first: int | None = None  # step of the first write
    last: int = -1  # step of the last use
    fixed: bool = False  # written before the function runs, and never by it
    written: list[Span] = field(default_factory=list)  # sorted, none touches the next

    def is_written(self, span: Span) -> bool:
        """Tell whether all bytes of a span have been written."""
        begin, end = span
        return begin >= end or any(b <= begin and end <= e for b, e in self.written)

    def is_touched(self, span: Span) -> bool:
        """Tell whether any byte of a span has been written."""
        return any(meet(span, other) for other in self.written)

    def write(self, span: Span) -> None:
        """Note that the bytes of a span are written."""
        merged: list[Span] = []
        for begin, end in sorted([*self.written, span]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        self.written = merged
