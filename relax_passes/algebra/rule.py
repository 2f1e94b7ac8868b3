"""What an algebraic rule is: an equation, what it does to IEEE values, and when it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm import relax

    from relax_passes.algebra.match import Match


class Ieee(Enum):
    """How far the two sides of an equation agree on floating-point numbers (IEEE 754)."""

    EXACT = "bit-equal, for NaN, infinities, signed zeros and denormals too"
    ZERO_SIGN = "bit-equal but for the sign of zeros"
    ROUNDING = "rounds, overflows and underflows in another order"
    NONFINITE = "may give a number where the left side gives NaN or an infinity, or the reverse"


class Declined(Exception):
    """Raised by a rewrite that does not apply after all; the text is the reason."""


@dataclass(frozen=True)
class Rule:
    """One equation, read from left to right.

    The text is Python's expression syntax: `x y z u v` are any tensors, `a b c d` constant ones,
    `k` a constant of one element, numbers are constants all of whose elements have that value, and
    `@` is the matrix product. Operators of attributes (`sum`, `concat`, ...) carry those of the
    left side over to the right. Sums and products match in either order of their operands.

    A rule fires only where the operators it removes cost more than those it adds
    (`operator_cost`), so a value that somebody else reads counts as kept, and no sequence of rules
    can go on for ever.
    """

    name: str
    equation: str
    ieee: Ieee
    pays: str  # when it saves FLOPs or bytes, for readers; the engine compares costs
    kinds: str = "f"  # element types it holds for: f floats, i integers (wrapping), b booleans
    pattern: str = ""  # what to look for, where the left side is not written out as a pattern
    check: Callable[[Match], str | None] | None = None  # why it does not apply, None if it does
    rewrite: Callable[[Match], relax.Expr] | None = None  # instead of the right side's text
    search: bool = False  # tried wherever it matches: that it does not pay is no news

    @property
    def left(self) -> str:
        """Return the text that is matched."""
        return self.pattern or self.equation.split(" = ", 1)[0]

    @property
    def right(self) -> str:
        """Return the text of the replacement."""
        return self.equation.split(" = ", 1)[1]

    def keeps_ieee(self, kind: str) -> bool:
        """Return whether both sides are bit-equal for elements of this kind."""
        return self.ieee is Ieee.EXACT or kind == "i"


@dataclass(frozen=True)
class Family:
    """The rules of one algebraic law, in the order they are tried."""

    name: str
    law: str
    rules: tuple[Rule, ...]
