"""Rows of a table, picked in bags and combined."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    index,
    kernel,
    parallel,
    serial,
    when,
)
from frontends.computations.sample_points import wide_float


def embedding_bag(
    table: te.Tensor,
    places: te.Tensor,
    offsets: te.Tensor,
    factors: te.Tensor | None,
    bags: Any,
    how: str,
    ignored: int | None,
) -> te.Tensor:
    """Return each bag's rows combined, (bags, width); an empty bag gives zeros.

    Args:
        table: (rows, width), float.
        places: Integers (n,), each a row.
        offsets: Integers, where each bag begins in `places`; it ends where the next one begins.
        factors: (n,) of the table's dtype: what each row is multiplied with.
        bags: How many.
        how: sum, mean or max.
        ignored: A row that does not count.
    """
    dtype, width, n = str(table.dtype), table.shape[1], index(places.shape[0])
    wide = wide_float(dtype)
    tensors = [table, places, offsets, *([] if factors is None else [factors])]

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(bags) as bag:
            start = Scalar(ins[2][bag])
            following = tirx.min(bag + 1, index(offsets.shape[0]) - 1)
            end = Scalar(tirx.Select(bag + 1 < offsets.shape[0], index(ins[2][following]), n))
            with serial(width) as column:
                total, count = Scalar(0.0, wide), Scalar(0)
                with serial(end() - start()) as step:
                    row = Scalar(ins[1][start() + step])
                    counts = True if ignored is None else row() != ignored
                    with when(as_dtype(counts, "bool")):
                        value = Scalar(as_dtype(ins[0][row(), column], wide), wide)
                        if factors is not None:
                            value.set(value() * as_dtype(ins[3][start() + step], wide))
                        if how == "max":
                            first = tirx.any(count() == 0, value() > total())
                            total.set(tirx.Select(first, value(), total()))
                        else:
                            total.set(total() + value())
                        count.set(count() + 1)
                if how == "mean":
                    total.set(total() / as_dtype(tirx.max(count(), index(1)), wide))
                outs[0][bag, column] = as_dtype(total(), dtype)

    return kernel(tensors, [((bags, width), dtype)], body, "embedding_bag")[0]


def checked_offsets(offsets: te.Tensor, places: te.Tensor, message: str) -> te.Tensor:
    """Return where bags begin; the kernel raises an error unless they divide all of `places`.

    Args:
        offsets: Integers, none less than the one before; the first is 0.
        places: Integers (n,), which the bags share; no bag begins behind them.
        message: Text of the error.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        least, most, wrong = Scalar(0), Scalar(0), Scalar(0)
        with serial(offsets.shape[0]) as bag:
            outs[0][bag] = ins[0][bag]
            start = Scalar(ins[0][bag])
            with when(tirx.any(start() < least(), start() > most())):
                wrong.set(1)
            least.set(start())
            most.set(index(places.shape[0]))  # only the first has to be 0
        with T.Assert(wrong() == 0, message, "ValueError"):
            T.evaluate(0)

    shape = tuple(offsets.shape)
    return kernel([offsets, places], [(shape, str(offsets.dtype))], body, "checked_offsets")[0]
