"""Pad in all its versions and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations import pad as computation
from frontends.computations.run_time_dims import NOTHING_LEFT, padded_dims, pads_of_all_axes
from frontends.dims import Dim, all_static, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis, numpy_dtype
from frontends.onnx.operators.run_time_size import read_sizes, refusing
from frontends.onnx.registry import converter
from frontends.onnx.window import require_widths


@converter("Pad", since=1)
def pad_attribute(op: Op) -> Any:
    """Pad by an attribute (opset 1 to 10)."""
    pads = op.attr("pads") or op.attr("paddings") or []
    return _pad(op, list(pads), list(range(op.ndim())), float(op.attr("value", 0.0)))


@converter("Pad", since=11)
def pad_input(op: Op) -> Any:
    """Pad by an input, optionally only some axes (opset 11, 13, 18 and on)."""
    known = op.dims(1)
    value = op.constant(2)
    constant = (value is not None or not op.has(2)) and (
        op.constant(3) is not None or not op.has(3)
    )
    if known is None or not constant:
        return _run_time_pad(op)
    axes = list(range(op.ndim()))
    if op.has(3):
        axes = [normalize_axis(axis, op.ndim()) for axis in op.ints(3, "axes")]
    return _pad(op, known, axes, 0 if value is None else value.reshape(-1)[0])


def _mode(op: Op) -> str:
    return str(op.attr("mode", "constant"))


def _pad(op: Op, pads: list[Dim], axes: list[int], value: Any) -> Any:
    rank = op.ndim()
    if len(pads) != 2 * len(axes):
        raise InvalidModel(f"{len(pads)} pads for {len(axes)} axes")
    require_widths(pads)
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[len(axes) + place]
    mode = _mode(op)
    if all_static([*before, *after]):
        if not any(before) and not any(after):
            return op.value(0)
        if min(*before, *after) >= 0 and mode == "constant" and op.dtype() == "float32":
            widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
            return R.nn.pad(op.x(), widths, "constant", float(value))
    number = np.asarray(value).astype(numpy_dtype(op.dtype()))

    if mode != "constant":
        for size, first, last in zip(op.shape(), before, after, strict=True):
            _state_that_elements_are_left(op, size, first, last)

    def compute(x: te.Tensor, widths: list[Any]) -> te.Tensor:
        fill = tirx.const(number.item(), str(number.dtype))
        return computation.pad(x, widths[:rank], widths[rank:], mode, fill)

    return op.te(compute, op.x(), name="pad", dims=[*before, *after])


def _state_that_elements_are_left(op: Op, size: Dim, before: Dim, after: Dim) -> None:
    """State that an axis is not empty after cutting, unless nothing is added to it."""
    added = [width for width in (before, after) if not (is_static(width) and width <= 0)]
    if not added:
        return
    cut = [op.arithmetic.minimum(width, 0) for width in (before, after)]
    left = op.arithmetic.simplify(size + sum(cut))
    if is_static(left):
        if left < 1:
            raise InvalidModel(f"nothing is left of an axis of {size} to continue it")
    elif not op.arithmetic.is_nonnegative(left - 1):
        holds, total = prim(left) >= 1, op.arithmetic.simplify(size + before + after)
        if not op.arithmetic.is_nonnegative(total - 1):
            holds = tirx.any(holds, prim(total) == 0)
        op.require(holds, "continues_elements")


def _run_time_pad(op: Op) -> relax.Expr:
    """Pad by widths, axes or a value that are known only at run time."""
    rank, mode = op.ndim(), _mode(op)
    if op.has(3):
        op.state(1, [2 * op.shape(3)[0]])
        pads = op.te(lambda p, a: pads_of_all_axes(p, a, rank), op.x(1), op.x(3), name="pads")
    else:
        op.state(1, [2 * rank])
        pads = op.x(1)
    sizes = op.te(
        lambda p, dims: padded_dims(p, dims, continued=mode != "constant"),
        pads, name="padded_dims", dims=op.shape(),
    )  # fmt: skip
    if mode != "constant":
        sizes = refusing(op, sizes, NOTHING_LEFT, "nothing is left of an axis to continue it")
    dims = read_sizes(op, sizes)
    value = op.x(2) if op.has(2) else op.const(0)
    fill = op.emit(R.reshape(value, relax.ShapeExpr([1])))

    def compute(x: te.Tensor, widths: te.Tensor, number: te.Tensor, sizes: list[Any]) -> te.Tensor:
        both = [widths(place).astype("int64") for place in range(2 * rank)]
        return computation.pad(x, both[:rank], both[rank:], mode, number(0), sizes)

    return op.te(compute, op.x(), pads, fill, name="pad", dims=dims)
