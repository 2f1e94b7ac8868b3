"""All rules, by family; `python -m relax_passes.algebra.rule_table` prints them as Markdown.

The order of families is the order in which rules of one operator are tried.
"""

from __future__ import annotations

from relax_passes.algebra.associative import ASSOCIATIVE
from relax_passes.algebra.broadcasting import BROADCASTS
from relax_passes.algebra.convolutions import CONVOLUTIONS
from relax_passes.algebra.distributive import DISTRIBUTIVE
from relax_passes.algebra.identities import IDENTITIES
from relax_passes.algebra.matrix_products import MATRIX_PRODUCTS
from relax_passes.algebra.reductions import REDUCTIONS
from relax_passes.algebra.rule import Family, Rule
from relax_passes.algebra.selection import SELECTION
from relax_passes.algebra.shape_operators import SHAPES
from relax_passes.algebra.strength import STRENGTH

FAMILIES: tuple[Family, ...] = (
    *(IDENTITIES, SELECTION, STRENGTH, ASSOCIATIVE, DISTRIBUTIVE),
    *(REDUCTIONS, MATRIX_PRODUCTS, CONVOLUTIONS, BROADCASTS, SHAPES),
)
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.rules)


def as_markdown() -> str:
    """Return the rules as the tables of docs/algebraic-rules.md."""
    lines: list[str] = []
    for family in FAMILIES:
        lines += [
            f"### {family.name.capitalize()}",
            "",
            f"{family.law[0].upper()}{family.law[1:]}.",
        ]
        lines += ["", "| rule | equation | IEEE | types | pays |", "|---|---|---|---|---|"]
        for rule in family.rules:
            equation = rule.equation.replace("|", "\\|")
            cells = (rule.name, f"`{equation}`", rule.ieee.name.lower(), rule.kinds, rule.pays)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(as_markdown())
