"""Indices checked before anything is read or written at them.

One pass over the indices costs little beside what is done at each of them, and lets a kernel that
reads at computed places be fused and vectorized as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, as_dtype, index, kernel, product, serial

NAME = "checked_indices"


def checked_indices(
    indices: te.Tensor, sizes: Sequence[Any], message: str, *, from_back: bool = True
) -> te.Tensor:
    """Return indices counted from the front; the kernel raises an error if one is out of range.

    Args:
        indices: Any shape; int32 or int64.
        sizes: The lengths that the columns of the last axis index, or one length for all indices.
            An index i fits a length n if -n <= i < n.
        message: Text of the error.
        from_back: Whether negative numbers count from the back; else they are out of range.
    """
    shape, dtype, columns = indices.shape, str(indices.dtype), len(sizes)

    def body(ins: list[Any], outs: list[Any]) -> None:
        rows = Scalar(tirx.floordiv(product(shape), index(columns)))
        outside = Scalar(0)
        # Not in parallel: an error raised in a worker thread is lost now and then.
        with serial(rows()) as row:
            for column, size in enumerate(sizes):
                at = row * columns + column
                given = index(ins[0][at])
                place = given
                if from_back:
                    place = tirx.Select(given < 0, given + index(size), given)
                # Both at once, and without a branch: a negative number is a large unsigned one.
                fits = as_dtype(place, "uint64") < as_dtype(index(size), "uint64")
                outside.set(tirx.Select(fits, outside(), index(1)))
                outs[0][at] = as_dtype(place, dtype)
        with T.Assert(outside() == 0, message, "IndexError"):
            T.evaluate(0)

    return kernel([indices], [(tuple(shape), dtype)], body, NAME)[0]
