"""What operators demand that compute each channel alone, or join and cut channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import tvm
from tvm import relax

from relax_passes.analysis.pointwise import BINARY, INFINITE_AT_ZERO, UNARY
from relax_passes.layout.blocked import dims_of, has_channels, is_one
from relax_passes.layout.demand import (
    CYCLES_PER_ELEMENT,
    PLAIN,
    Demand,
    elements,
    operands,
    same_layout,
)
from relax_passes.layout.lanes import Lanes, fill_up
from relax_passes.view_before_slice import slice_of_one_axis

_APART = 0.01  # the share of its time that an operator in NCHW takes more


def unary_demand(call: tvm.ir.Call, lanes: Lanes) -> Demand:
    """Return the demand of an operator of single elements of one tensor."""
    return replace(_pointwise(call, [call.args[0]], lanes), joins=True)


def _pointwise(call: tvm.ir.Call, values: Iterable[relax.Expr], lanes: Lanes) -> Demand:
    """Return the demand of what has one layout: that of its result is that of its operands."""
    channels = int(dims_of(call)[1])
    moved = elements(call) * CYCLES_PER_ELEMENT
    # Next to a convolution it joins the kernel, so that of equals blocks are better.
    results = {PLAIN: moved * _APART}
    for block in lanes.blocks(channels):
        more = fill_up(channels, block)
        if not more or call.op.name not in INFINITE_AT_ZERO:
            results[block] = moved * more / channels
    return Demand(results, operands(values, same_layout))


def _binary(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    channels = int(dims_of(call)[1])
    values = []
    for value in call.args:
        shape = getattr(value.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr):
            return None
        dims = list(shape.values)
        if isinstance(value, tvm.ir.GenericConst):
            if len(dims) > 4 or (len(dims) >= 3 and int(dims[-3]) not in (1, channels)):
                return None
        elif len(dims) == 4 and has_channels(value) and int(dims[1]) == channels:
            values.append(value)
        elif len(dims) >= 3 and not is_one(dims[-3]):
            return None
    if not values:
        return None
    demand = _pointwise(call, values, lanes)
    if call.op.name == "relax.divide" and isinstance(call.args[1], tvm.ir.GenericConst):
        # The lanes that fill up are divided by one.
        results = {**dict.fromkeys(lanes.blocks(channels), 0.0), PLAIN: demand.results[PLAIN]}
        return Demand(results, demand.operands, joins=True)
    return replace(demand, joins=True)


def _windowed(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    """Return the demand of what computes each channel alone, from several of its pixels."""
    layout = getattr(call.attrs, "layout", "NCHW")
    if str(layout) != "NCHW" or str(getattr(call.attrs, "method", "")) == "cubic":
        return None
    return _in_registers(_pointwise(call, [call.args[0]], lanes), lanes)


def _in_registers(demand: Demand, lanes: Lanes) -> Demand:
    short = {b: cost for b, cost in demand.results.items() if not lanes.is_channels_last(b)}
    return Demand(short, demand.operands)


def _mean(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    return _windowed(call, lanes) if is_mean_of_pixels(call) else None


def is_mean_of_pixels(call: tvm.ir.Call) -> bool:
    """Return whether `call` is the mean of each channel of (N, C, H, W)."""
    if call.op.name != "relax.mean" or call.attrs.axis is None or not has_channels(call.args[0]):
        return False
    return sorted(int(a) % 4 for a in call.attrs.axis) == [2, 3]


def _pad(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    widths = [int(w) for w in call.attrs.pad_width]
    return _windowed(call, lanes) if len(widths) == 8 and not any(widths[2:4]) else None


def _concat(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    parts = call.args[0]
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % 4
    if not isinstance(parts, relax.Tuple) or axis != 1:
        return None
    if not all(isinstance(p, relax.Var) and has_channels(p) for p in parts.fields):
        return None
    sizes = [int(dims_of(part)[1]) for part in parts.fields]
    if lanes.one_block:
        return _joined_rows(call, parts.fields, lanes)
    demand = _in_registers(_pointwise(call, parts.fields, lanes), lanes)
    results = {
        block: cost
        for block, cost in demand.results.items()
        # Only the last block of all may be filled up.
        if block == PLAIN or not any(size % block for size in sizes[:-1])
    }
    return Demand(results, demand.operands)


def _joined_rows(call: tvm.ir.Call, parts: Iterable[relax.Var], lanes: Lanes) -> Demand:
    """Return the demand of parts that each hold all of their channels side by side."""
    results = _pointwise(call, parts, lanes).results
    if any(size % lanes.count for size in (int(dims_of(part)[1]) for part in list(parts)[:-1])):
        results = {PLAIN: results[PLAIN]}
    return Demand(
        results, operands(parts, lambda have, result: (have == PLAIN) == (result == PLAIN))
    )


def _slice(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    place = slice_of_one_axis(call)
    if place is None or not has_channels(call.args[0]):
        return None
    axis, begin, end = place
    demand = _in_registers(_pointwise(call, [call.args[0]], lanes), lanes)
    if axis != 1:
        return demand
    channels = int(dims_of(call.args[0])[1])
    results = {
        block: cost
        for block, cost in demand.results.items()
        if block == PLAIN or not (begin % block or (end % block and end != channels))
    }
    return Demand(results, demand.operands)


CHANNELWISE: dict[str, Callable[[tvm.ir.Call, Lanes], Demand | None]] = {
    **dict.fromkeys(UNARY, unary_demand),
    **dict.fromkeys(BINARY, _binary),
    "relax.nn.max_pool2d": _windowed,
    "relax.nn.avg_pool2d": _windowed,
    "relax.nn.adaptive_avg_pool2d": _windowed,
    "relax.image.resize2d": _windowed,
    "relax.nn.pad": _pad,
    "relax.mean": _mean,
    "relax.concat": _concat,
    "relax.strided_slice": _slice,
}
