"""What an operator demands of layouts, as the plan reads it.

A layout is a number: 0 is NCHW, b > 0 is NCHW[b]c. Blocks of all channels at once are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax

from relax_passes.layout.blocked import dims_of

PLAIN = 0
# A core moves about eight bytes a cycle between its caches: a transform reads and writes.
CYCLES_PER_ELEMENT = 2 * 4 / 8
_NOMINAL_SIZE = 64  # what a symbolic number of pixels counts as
Takes = Callable[[int, int], bool]


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator reads.

    `takes(layout, result)` tells whether it reads `layout` as it is, its result being in `result`.
    """

    value: relax.Var
    takes: Takes


@dataclass(frozen=True)
class Demand:
    """The layouts a result can be computed in, with the cycles each takes, and the operands.

    `joins` tells whether the operator is one of single elements, which joins the kernel of what it
    reads where no transform lies between the two.
    """

    results: dict[int, float]
    operands: tuple[Operand, ...]
    joins: bool = False


def elements(value: relax.Expr) -> float:
    """Return the elements of a tensor, symbolic sizes at a nominal one."""
    sizes = [int(d) if isinstance(d, tvm.tirx.IntImm) else None for d in dims_of(value)]
    return prod(_NOMINAL_SIZE if s is None else s for s in sizes[1:]) * (sizes[0] or 1)


def operands(values: Iterable[relax.Expr], takes: Takes) -> tuple[Operand, ...]:
    """Return the operands among `values` that are no constants."""
    return tuple(Operand(value, takes) for value in values if isinstance(value, relax.Var))


def same_layout(have: int, result: int) -> bool:
    """Tell whether an operator that writes what it reads takes a layout."""
    return have == result
