"""How the tutorials print: a heading, a piece of TVMScript, a table in columns."""

from __future__ import annotations

from collections.abc import Sequence


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{'=' * 100}\n{text}\n{'=' * 100}\n")


def show(code: str, most: int = 60) -> None:
    """Print TVMScript without its imports, and at most `most` lines of it."""
    lines = [line for line in code.splitlines() if not line.startswith(("# from", "from"))]
    print("\n".join(lines[:most]))
    if len(lines) > most:
        print(f"    … {len(lines) - most} more lines")


def columns(rows: Sequence[Sequence[object]], *heads: str) -> None:
    """Print rows below their heads, each column as wide as its widest cell."""
    cells = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for number, row in enumerate(cells):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("    " + "  ".join(padded).rstrip())
        if number == 0:
            print("    " + "  ".join("-" * width for width in widths))
