"""The transpose of a square of vectors, by shuffles between registers."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.tirx import Expr


def transposed(rows: Sequence[Expr]) -> list[Expr]:
    """Return the columns of a square matrix whose rows are vectors.

    Blocks off the diagonal change places, blocks of 1, 2, 4 ... elements in turn: log2(n) shuffles
    for each of n vectors (Eklundh, "A Fast Computer Method for Matrix Transposing", 1972).

    Args:
        rows: n vectors of n lanes; n is a power of two.
    """
    current, lanes = list(rows), len(rows)
    step = 1
    while step < lanes:
        kept = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
        moved = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
        for at in range(lanes):
            if not at & step:
                pair = [current[at], current[at + step]]
                current[at], current[at + step] = _shuffle(pair, kept), _shuffle(pair, moved)
        step *= 2
    return current


def _shuffle(vectors: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    return tirx.Shuffle(vectors, [tirx.const(lane, "int32") for lane in lanes])
