"""Pad in all its versions and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations import pad as computation
from frontends.computations.run_time_dims import padded_dims, pads_of_all_axes
from frontends.dims import Dim, all_static, is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis, numpy_dtype
from frontends.onnx.operators.run_time_size import read_sizes
from frontends.onnx.registry import converter


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

    def compute(x: te.Tensor, widths: list[Any]) -> te.Tensor:
        first, last = widths[:rank], widths[rank:]
        dims = [b + s + a for b, s, a in zip(first, x.shape, last, strict=True)]
        fill = tirx.const(number.item(), str(number.dtype))
        return computation.pad(x, first, dims, mode, fill)

    return op.te(compute, op.x(), name="pad", dims=[*before, *after])


def _run_time_pad(op: Op) -> relax.Expr:
    """Pad by widths, axes or a value that are known only at run time."""
    rank, mode = op.ndim(), _mode(op)
    if op.has(3):
        if not is_static(op.shape(3)[0]):
            raise op.unsupported("an unknown number of axes")
        op.state(1, [2 * op.shape(3)[0]])
        pads = op.te(lambda p, a: pads_of_all_axes(p, a, rank), op.x(1), op.x(3), name="pads")
    else:
        op.state(1, [2 * rank])
        pads = op.x(1)
    dims = read_sizes(op, op.te(padded_dims, pads, name="padded_dims", dims=op.shape()))
    value = op.x(2) if op.has(2) else op.const(0)
    fill = op.emit(R.reshape(value, relax.ShapeExpr([1])))

    def compute(x: te.Tensor, widths: te.Tensor, number: te.Tensor, sizes: list[Any]) -> te.Tensor:
        before = [widths(axis).astype("int64") for axis in range(rank)]
        return computation.pad(x, before, sizes, mode, number(0))

    return op.te(compute, op.x(), pads, fill, name="pad", dims=dims)
