"""Undo max pooling: put elements back where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    divided,
    index,
    kernel,
    parallel,
    product,
    serial,
    when,
)


def max_unpool(
    x: te.Tensor, places: te.Tensor, pooled_from: Sequence[Any], output: Sequence[Any]
) -> te.Tensor:
    """Return a tensor of zeros with each element of `x` at its place.

    Args:
        x: (n, c, *small).
        places: int64, shaped as `x`: flat indices into a tensor of shape `pooled_from`.
        pooled_from: The shape that the pool had read.
        output: The shape of the result, of the same rank; elements keep their coordinates, and
            those that lie outside are dropped. Of several with one place the last stays.
    """
    dtype = str(x.dtype)
    sizes = [index(size) for size in pooled_from]
    target = [index(size) for size in output]

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(product(target)) as flat:
            outs[0][flat] = as_dtype(0, dtype)
        with serial(product(x.shape)) as flat:
            rest = Scalar(ins[1][flat])
            moved, scale = Scalar(index(0)), Scalar(index(1))
            fits = Scalar(tirx.all(rest() >= 0, rest() < product(sizes)), "bool")
            for size, limit in zip(reversed(sizes), reversed(target), strict=True):
                quotient, remainder = divided(rest(), size)
                along = Scalar(remainder)
                rest.set(quotient)
                moved.set(moved() + along() * scale())
                scale.set(scale() * limit)
                fits.set(tirx.all(fits(), along() < limit))
            with when(fits()):
                outs[0][moved()] = ins[0][flat]

    return kernel([x, places], [(target, dtype)], body, "max_unpool")[0]
