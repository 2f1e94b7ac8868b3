"""Concatenations, splits, slices and pads whose parts are runs of bytes: lowered, and marked.

A part along an axis is one run of bytes where every axis before it has size 1: channels of one
image, in NCHW as in NCHW[x]c. Such an operator needs no kernel if what makes a part writes it into
the whole, or if what reads a part reads it there (`elide_copies`). Should that pass decline, the
kernels that TVM's rules make stay; an attribute of theirs says which bytes the parts are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import relax
from tvm.tirx import IntImm

from relax_passes.lowering.rule import LoweringRule, default_lowering, static_shape
from relax_passes.pass_base import PassContext

JOINED_AXIS = "relaxc.joined_axis"  # of a concatenation: its axis
SLICE_OFFSETS = "relaxc.slice_offsets"  # of a slice or a split: each result's first element
PADDED_ENDS = "relaxc.padded_ends"  # of a pad: axis, size before and size behind
PAD_VALUE = "relaxc.pad_value"
SCATTERED = "relaxc.scattered_parts"  # of all four: why the parts are no runs of bytes

_Attributes = dict[str, object]
_INNER_AXIS: _Attributes = {
    SCATTERED: "the parts lie interleaved: an axis before theirs is larger than 1"
}
_SYMBOLIC: _Attributes = {SCATTERED: "sizes are known only at run time"}


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for operators that put parts together or take them apart."""
    del ctx  # the same on every target
    return {
        "relax.concat": _marking(_concat),
        "relax.split": _marking(_split),
        "relax.strided_slice": _marking(_slice),
        "relax.nn.pad": _marking(_pad),
    }


def _marking(describe: Callable[[tvm.ir.Call], _Attributes]) -> LoweringRule:
    """Return TVM's rule, which also gives the kernel the attributes that `describe` finds."""

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        made = default_lowering(bb, call)
        attributes = describe(call)
        if isinstance(made, tvm.ir.Call) and made.op != call.op:
            callee = made.args[0]
            bb.update_func(callee, bb.get()[callee].with_attr(attributes))
        return made

    return lower


def _concat(call: tvm.ir.Call) -> _Attributes:
    shape = static_shape(call)
    if shape is None:
        return _SYMBOLIC
    axis = int(call.attrs.axis or 0) % len(shape)
    return {JOINED_AXIS: axis} if _is_outermost(shape, axis) else _INNER_AXIS


def _split(call: tvm.ir.Call) -> _Attributes:
    shape = static_shape(call.args[0])
    if shape is None:
        return _SYMBOLIC
    axis = int(call.attrs.axis) % len(shape)
    if not _is_outermost(shape, axis):
        return _INNER_AXIS
    sizes = [math.prod(int(dim) for dim in part.shape) for part in call.ty.fields]
    return {SLICE_OFFSETS: [sum(sizes[:k]) for k in range(len(sizes))]}


def _slice(call: tvm.ir.Call) -> _Attributes:
    shape, result = static_shape(call.args[0]), static_shape(call)
    lists = [_integers(arg) for arg in call.args[1:]]
    if shape is None or result is None or len(lists) < 3 or any(each is None for each in lists):
        return _SYMBOLIC
    axes, begins, ends, *more = (each or [] for each in lists)
    steps = more[0] if more else [1] * len(axes)
    start = [0] * len(shape)
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        size = shape[axis]
        first, last = (min(max(n + size if n < 0 else n, 0), size) for n in (begin, end))
        if step != 1 or last - first != result[axis]:
            return {SCATTERED: f"it takes every {step}. place along axis {axis}"}
        start[axis] = first
    cut = [axis for axis, size in enumerate(shape) if result[axis] != size]
    if cut and not _is_outermost(result, cut[-1]):
        return _INNER_AXIS
    offset = sum(n * math.prod(shape[axis + 1 :]) for axis, n in enumerate(start))
    return {SLICE_OFFSETS: [offset]}


def _pad(call: tvm.ir.Call) -> _Attributes:
    shape = static_shape(call)
    value = getattr(call.attrs, "pad_value", None)
    if shape is None:
        return _SYMBOLIC
    if str(call.attrs.pad_mode) != "constant" or value is None:
        return {SCATTERED: f"it pads by {call.attrs.pad_mode}"}
    widths = [int(width) for width in call.attrs.pad_width]
    ends = [(axis, *widths[2 * axis : 2 * axis + 2]) for axis in range(len(shape))]
    padded = [end for end in ends if end[1] or end[2]]
    if len(padded) != 1 or min(padded[0][1:]) < 0 or not _is_outermost(shape, padded[0][0]):
        return _INNER_AXIS
    return {PADDED_ENDS: list(padded[0]), PAD_VALUE: float(getattr(value, "value", value))}


def _is_outermost(shape: Sequence[int], axis: int) -> bool:
    """Tell whether a stretch along an axis is one run of bytes."""
    return math.prod(shape) > 0 and math.prod(shape[:axis]) == 1


def _integers(values: relax.Expr) -> list[int] | None:
    items = [getattr(item, "value", item) for item in getattr(values, "fields", [None])]
    if not all(isinstance(item, int | IntImm) for item in items):
        return None
    return [int(item) for item in items]
