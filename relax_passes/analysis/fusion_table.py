"""Which pair of categories may fuse, and why: the table in docs/fusion.md is printed from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relax_passes.analysis.category import Category

_EW, _BC, _INJ = Category.ELEMENTWISE, Category.BROADCAST, Category.INJECTIVE
_RED, _COMPLEX = Category.REDUCTION, Category.COMPLEX_OUT_FUSABLE


class When(Enum):
    """The condition under which a pair fuses."""

    ALWAYS = "always"
    SAME_SHAPE = "if the consumer keeps the producer's shape"
    EPILOGUE_OPERAND = "if it feeds the epilogue, not the anchor, at the epilogue's shape"


@dataclass(frozen=True)
class Entry:
    """When a producer of one category fuses into a consumer of another, and the reason."""

    when: When
    why: str


_CHAIN = Entry(When.ALWAYS, "one pass over memory instead of two; each element is computed once")
_PROLOGUE = Entry(When.ALWAYS, "the reduction reads each element where it is made")
_HOT = Entry(When.SAME_SHAPE, "the result is still in registers or L1 when the consumer needs it")
_SIDE = Entry(When.EPILOGUE_OPERAND, "the operand is made where the epilogue reads it")

# (producer group, consumer group); a pair that is not listed does not fuse.
FUSION_TABLE: dict[tuple[Category, Category], Entry] = {
    **{(a, b): _CHAIN for a in (_EW, _BC, _INJ) for b in (_EW, _BC, _INJ)},
    (_EW, _RED): _PROLOGUE,
    (_BC, _RED): _PROLOGUE,
    (_EW, _COMPLEX): _SIDE,
    (_BC, _COMPLEX): _SIDE,
    (_RED, _EW): _HOT,
    (_RED, _BC): _HOT,
    (_COMPLEX, _EW): _HOT,
    (_COMPLEX, _BC): _HOT,
}


def as_markdown() -> str:
    """Return the table as it appears in docs/fusion.md: producers down, consumers across."""
    names = list(Category)
    lines = ["| producer \\ consumer | " + " | ".join(c.name.lower() for c in names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for producer in names:
        cells = []
        for consumer in names:
            entry = FUSION_TABLE.get((producer, consumer))
            cells.append("no" if entry is None else f"{entry.when.value}: {entry.why}")
        lines.append(f"| {producer.name.lower()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
