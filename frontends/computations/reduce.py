"""Reductions over axes that are known only at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    index,
    kernel,
    parallel,
    product,
    serial,
    when,
)
from frontends.computations.scatter import combine


def _same(value: Any) -> Any:
    return value


def _square(value: Any) -> Any:
    return value * value


@dataclass(frozen=True)
class Reduction:
    """What a reduction does with each element, with two partial results, and at the end.

    Attributes:
        how: sum ("add"), "mul", "max" or "min".
        before: Maps an element.
        after: Maps the total.
        fractional: Whether integers are reduced in float64.
        is_mean: Divide the total by the number of elements.
        shifted: Take the maximum off each element first, and add it at the end.
    """

    how: str = "add"
    before: Callable[[Any], Any] = _same
    after: Callable[[Any], Any] = _same
    fractional: bool = False
    is_mean: bool = False
    shifted: bool = False


REDUCTIONS = {
    "sum": Reduction(),
    "mean": Reduction(is_mean=True, fractional=True),
    "max": Reduction("max"),
    "min": Reduction("min"),
    "prod": Reduction("mul"),
    "l1": Reduction(before=tirx.abs),
    "l2": Reduction(before=_square, after=tirx.sqrt, fractional=True),
    "sum_square": Reduction(before=_square),
    "log_sum": Reduction(after=tirx.log, fractional=True),
    "log_sum_exp": Reduction(before=tirx.exp, after=tirx.log, fractional=True, shifted=True),
}


def kept_dims(
    axes: te.Tensor, dims: Sequence[Any], *, keep: bool, every_if_none: bool = True
) -> list[te.Tensor]:
    """Return the result's shape, and which axes are reduced.

    Args:
        axes: (number,), integers, negative ones counted from the end.
        dims: The shape that is reduced.
        keep: Reduced axes stay, with size 1; else the result has `number` axes fewer.
        every_if_none: Whether all axes are reduced where none is listed.

    Returns:
        int64 (rank of the result,) and int64 (rank,), 1 where an axis is reduced.
    """
    rank = len(dims)
    number = axes.shape[0]

    def body(ins: list[Any], outs: list[Any]) -> None:
        shape, reduced = outs
        for axis in range(rank):
            reduced[axis] = tirx.Select(index(number) == 0, index(every_if_none), index(0))
        with serial(number) as k:
            given = Scalar(ins[0][k])
            with when(given() < 0):
                given.set(given() + rank)
            with when(tirx.all(given() >= 0, given() < rank)):
                reduced[given()] = index(1)
        if keep:
            for axis in range(rank):
                shape[axis] = tirx.Select(reduced[axis] != 0, index(1), index(dims[axis]))
        else:
            place = Scalar(0)
            for axis in range(rank):
                with when(tirx.all(reduced[axis] == 0, place() < rank - number)):
                    shape[place()] = index(dims[axis])
                    place.set(place() + 1)

    shapes = [((rank if keep else rank - number,), "int64"), ((rank,), "int64")]
    return kernel([axes], shapes, body, "kept_dims")


def reduce_axes(
    x: te.Tensor, reduced: te.Tensor, shape: Sequence[Any], kind: Reduction
) -> te.Tensor:
    """Return the reduction over the axes where `reduced` is 1.

    Args:
        x: Any shape and number type; narrow floats are reduced in float32.
        reduced: int64 (rank of x,).
        shape: The result's, as `kept_dims` says.
        kind: Which reduction.
    """
    dtype, rank = str(x.dtype), len(x.shape)
    is_float = "float" in dtype
    wide = dtype if is_float or not kind.fractional else "float64"
    wide = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}.get(wide, wide)

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, mask = ins
        with parallel(product(shape)) as row:
            rest = row
            base: list[Scalar] = []
            for axis in range(rank - 1, -1, -1):
                size = tirx.Select(mask[axis] != 0, index(1), index(x.shape[axis]))
                base.insert(0, Scalar(tirx.floormod(rest, tirx.max(size, index(1)))))
                rest = tirx.floordiv(rest, tirx.max(size, index(1)))

            def each(use: Callable[[Any], None]) -> None:
                with ExitStack() as loops:
                    at = []
                    for axis in range(rank):
                        extent = tirx.Select(mask[axis] != 0, index(x.shape[axis]), index(1))
                        at.append(loops.enter_context(serial(extent)) + base[axis]())
                    use(as_dtype(data[tuple(at)], wide))

            top = Scalar(0, wide)
            if kind.shifted:
                top.set(as_dtype(-math.inf, wide))
                each(lambda value: top.set(tirx.max(top(), value)))
                with when(tirx.isinf(top())):
                    top.set(as_dtype(0.0, wide))
            total, count = Scalar(_identity(kind.how, wide), wide), Scalar(0)

            def accumulate(value: Any) -> None:
                shifted = value - top() if kind.shifted else value
                total.set(combine(total(), kind.before(shifted), kind.how))
                if kind.is_mean:
                    count.set(count() + 1)

            each(accumulate)
            if kind.is_mean:
                total.set(total() / as_dtype(count(), wide))
            result = kind.after(total())
            outs[0][row] = as_dtype(result + top() if kind.shifted else result, dtype)

    return kernel([x, reduced], [(shape, dtype)], body, "reduce_axes")[0]


def _identity(how: str, dtype: str) -> Any:
    if how in ("add", "mul"):
        return as_dtype(0 if how == "add" else 1, dtype)
    if "float" in dtype:
        return as_dtype(-math.inf if how == "max" else math.inf, dtype)
    return tirx.min_value(dtype) if how == "max" else tirx.max_value(dtype)
