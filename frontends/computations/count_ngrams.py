"""Count runs of numbers in rows of numbers."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, index, kernel, parallel, serial, when


def count_ngrams(
    x: te.Tensor, grams: te.Tensor, lengths: te.Tensor, columns: te.Tensor, size: int, skips: int
) -> te.Tensor:
    """Count how often each n-gram occurs in each row.

    The items of an n-gram may be up to `skips` items apart from each other, each time the same
    number; a single item is counted once.

    Args:
        x: int64 (rows, items).
        grams: int64 (n-grams, longest): their items, filled up with anything.
        lengths: int64 (n-grams,).
        columns: int64 (n-grams,): where to count each.
        size: Number of columns.
        skips: Most items to skip.

    Returns:
        float32 (rows, size).
    """
    rows, items = x.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, gram, length, column = ins
        one = tirx.const(1.0, "float32")
        with parallel(rows) as row:
            with serial(size) as c:
                outs[0][row, c] = tirx.const(0.0, "float32")
            with serial(grams.shape[0]) as g:
                many = tirx.Select(length[g] > 1, index(skips + 1), index(1))
                with serial(many) as skip:
                    reach = (skip + 1) * (length[g] - 1)
                    with serial(tirx.max(index(items) - reach, index(0))) as start:
                        matched = Scalar(0)
                        with T.While(
                            tirx.all(
                                matched() < length[g],
                                data[
                                    row,
                                    tirx.min(start + matched() * (skip + 1), index(items) - 1),
                                ]
                                == gram[g, tirx.min(matched(), index(grams.shape[1]) - 1)],
                            )
                        ):
                            matched.set(matched() + 1)
                        with when(matched() == length[g]):
                            outs[0][row, column[g]] = outs[0][row, column[g]] + one

    return kernel([x, grams, lengths, columns], [((rows, size), "float32")], body, "count_ngrams")[
        0
    ]
