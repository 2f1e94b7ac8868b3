"""The place of the greatest or least element along an axis."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import as_dtype


def arg_extremum(
    x: te.Tensor, axis: int, *, greatest: bool, last: bool, keep_axis: bool
) -> te.Tensor:
    """Return the place, as int64, of the extremum along `axis`; a NaN is the extremum.

    Args:
        x: Any number type; at least one element along `axis`.
        axis: Counted from the front.
        greatest: The greatest element, not the least.
        last: Of equal elements the last, not the first.
        keep_axis: Keep the axis, with size 1.
    """
    dtype = str(x.dtype)
    wide = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}.get(dtype, dtype)

    def combine(left: Any, right: Any) -> tuple[Any, Any]:
        (i, a), (j, b) = left, right
        better, equal = (a > b) if greatest else (a < b), a == b
        if "float" in wide:
            both = tirx.all(tirx.isnan(a), tirx.isnan(b))
            better = tirx.any(better, tirx.all(tirx.isnan(a), tirx.Not(tirx.isnan(b))))
            equal = tirx.any(equal, both)
        # The identity has no place (-1): every element, even one equal to it, wins against it.
        earlier = tirx.all(i >= 0, (i > j) if last else tirx.any(j < 0, i < j))
        keep_left = tirx.any(j < 0, tirx.all(i >= 0, better), tirx.all(equal, earlier))
        return tirx.Select(keep_left, i, j), tirx.Select(keep_left, a, b)

    def identity(place: str, value: str) -> tuple[Any, Any]:
        if "float" in wide:
            return tirx.const(-1, place), tirx.const(float("-inf" if greatest else "inf"), value)
        worst = tirx.min_value(value) if greatest else tirx.max_value(value)
        return tirx.const(-1, place), worst

    reducer = te.comm_reducer(combine, identity, name="arg_extremum")
    step = te.reduce_axis((0, x.shape[axis]), name="k")
    shape = [dim for place, dim in enumerate(x.shape) if place != axis]

    def pick(*at: Any) -> Any:
        full = (*at[:axis], step, *at[axis:])
        return reducer((step.var.astype("int64"), as_dtype(x(*full), wide)), axis=step)

    if keep_axis:
        shape.insert(axis, 1)
        places, _ = te.compute(shape, lambda *at: pick(*at[:axis], *at[axis + 1 :]), name="arg")
    else:
        places, _ = te.compute(shape, pick, name="arg")
    return te.compute(shape, lambda *at: places(*at), name="place")
