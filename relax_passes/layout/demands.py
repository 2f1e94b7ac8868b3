"""Which layouts an operator computes in, and which it takes each operand in.

A layout is a number: 0 is NCHW, b > 0 is NCHW[b]c. Blocks of all channels at once are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax

from relax_passes.analysis.pointwise import BINARY, INFINITE_AT_ZERO, UNARY
from relax_passes.layout.blocked import (
    choose_block,
    choose_even_block,
    dims_of,
    fill_up,
    has_channels,
)
from relax_passes.layout.transposed_convolution import transpose_obstacle
from relax_passes.lowering.rule import dtype_of, has_no_elements, is_float32, static_shape
from relax_passes.view_before_slice import slice_of_one_axis

PLAIN = 0
# An image of so few channels is read in NCHW: each element is loaded alone in either layout.
FEW_CHANNELS = 4
TO_CHANNELS_LAST, TO_CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
# A core moves about eight bytes a cycle between its caches: a transform reads and writes.
CYCLES_PER_ELEMENT = 2 * 4 / 8
_APART = 0.01
_NOMINAL_SIZE = 64  # what a symbolic number of pixels counts as
Takes = Callable[[int, int], bool]


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator reads.

    `takes(layout, result)` tells whether it reads `layout` as it is, its result being in `result`.
    """

    value: relax.Var
    takes: Takes


@dataclass(frozen=True)
class Demand:
    """The layouts a result can be computed in, with the cycles each takes, and the operands."""

    results: dict[int, float]
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Lanes:
    """What blocks may be: the lanes of a register, and whether a last block may be filled up."""

    count: int
    fill_up: bool

    def choose(self, channels: int) -> int:
        """Return the block that is best for a convolution that writes `channels`."""
        choose = choose_block if self.fill_up else choose_even_block
        return choose(channels, self.count)

    def blocks(self, channels: int) -> list[int]:
        """Return the blocks worth a thought, the one of all channels included."""
        quarter = max(1, self.count // 4)
        whole = range(quarter, self.count + 1, quarter)
        found = {b for b in whole if channels % b == 0 and 2 * b >= self.count}
        found |= {choose_even_block(channels, self.count), self.choose(channels)}
        if self.fill_up and channels > self.count:
            found.add(self.count)  # a slice or the end of a concatenation
        if channels % self.count == 0:
            found.add(channels)
        return sorted(found)

    def is_channels_last(self, block: int) -> bool:
        """Return whether a block is longer than a register: only few kernels work on it."""
        return block > self.count

    def registers(self, channels: int, block: int) -> float:
        """Return how many registers the channels of a pixel take; odd ones load in two parts."""
        if self.is_channels_last(block):
            return channels / self.count
        count = -(-channels // block)
        return count if block & (block - 1) == 0 else 1.15 * count


def elements(value: relax.Expr) -> float:
    """Return the elements of a tensor, symbolic sizes at a nominal one."""
    sizes = [int(d) if isinstance(d, tvm.tirx.IntImm) else None for d in dims_of(value)]
    return prod(_NOMINAL_SIZE if s is None else s for s in sizes[1:]) * (sizes[0] or 1)


def demand_of(call: tvm.ir.Call, lanes: Lanes, fma_units: int) -> Demand | None:
    """Return what `call` demands, None if it computes in NCHW alone."""
    tensors = [call, *(a for a in call.args if is_float32(a))]
    if not is_float32(call) or not has_channels(call) or any(map(has_no_elements, tensors)):
        return None
    name = call.op.name
    if name == "relax.nn.conv2d":
        return None if convolution_obstacle(call) else _convolution(call, lanes, fma_units)
    if name == "relax.nn.conv2d_transpose":
        if transpose_obstacle(call) is not None:
            return None
        block = choose_even_block(int(dims_of(call)[1]), lanes.count)
        return Demand({block: 0.0}, _operands([call.args[0]], lambda have, _: have != PLAIN))
    if name in UNARY:
        return _pointwise(call, [call.args[0]], lanes)
    if name in BINARY:
        return _binary(call, lanes)
    if name == "relax.permute_dims" and axes(call) == TO_CHANNELS_FIRST:
        channels = int(dims_of(call)[1])
        moved = elements(call) * CYCLES_PER_ELEMENT
        costs = {block: 0.0 if block == channels else moved for block in lanes.blocks(channels)}
        return Demand({PLAIN: moved, **costs}, ())
    handler = _WINDOWS.get(name)
    return None if handler is None else handler(call, lanes)


def convolution_obstacle(call: tvm.ir.Call) -> str | None:
    """Return why a convolution stays in NCHW, None if it can be computed in blocks."""
    data, weight = call.args
    attrs = call.attrs
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    if layouts != ("NCHW", "OIHW", "NCHW"):
        return "its layout is not NCHW"
    shape = static_shape(weight)
    if shape is None or not has_channels(data):
        return "its channels or its kernel are symbolic"
    if not is_float32(data, weight):
        return f"its type is {dtype_of(weight)}"
    return "its kernel is empty" if 0 in shape else None


def is_depthwise(call: tvm.ir.Call) -> bool:
    """Return whether each channel of a convolution is computed from one of its own."""
    out, per_group = (int(d) for d in dims_of(call.args[1])[:2])
    return int(call.attrs.groups) == out > 1 and per_group == 1


def sums_over_blocks_of(block: int, call: tvm.ir.Call, lanes: Lanes) -> bool:
    """Return whether a convolution reads its input in blocks of the given size as it is.

    Winograd's sums are taken over blocks of one register: NHWC would rule them out.
    """
    strides, kernel = list(call.attrs.strides), dims_of(call.args[1])[2:]
    winograd = [int(s) for s in (*strides, *kernel)] == [1, 1, 3, 3]
    return not (winograd and lanes.is_channels_last(block))


def _convolution(call: tvm.ir.Call, lanes: Lanes, fma_units: int) -> Demand:
    data, weight = call.args
    out, per_group, *kernel = (int(d) for d in dims_of(weight))
    groups = int(call.attrs.groups)
    products = elements(call) / out * per_group * prod(kernel) / fma_units

    def costs(blocks: Iterable[int]) -> dict[int, float]:
        return {
            block: products * lanes.registers(out, block)
            + CYCLES_PER_ELEMENT * elements(call) * (1 + fill_up(out, block) / out)
            for block in blocks
        }

    if is_depthwise(call):
        return Demand(costs(lanes.blocks(out)), _operands([data], _same))
    if groups > 1:
        inner = choose_even_block(per_group, lanes.count)
        block = choose_even_block(out // groups, lanes.count)
        return Demand(costs([block]), _operands([data], lambda have, _: have == inner))

    def takes(have: int, _: int) -> bool:
        if have == PLAIN:
            return per_group <= FEW_CHANNELS
        return sums_over_blocks_of(have, call, lanes)

    short = [b for b in lanes.blocks(out) if not lanes.is_channels_last(b)]
    return Demand(costs(short), _operands([data], takes))


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
    return Demand(results, _operands(values, _same))


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
        elif len(dims) >= 3 and not (isinstance(dims[-3], tvm.tirx.IntImm) and int(dims[-3]) == 1):
            return None
    if not values:
        return None
    demand = _pointwise(call, values, lanes)
    if call.op.name == "relax.divide" and isinstance(call.args[1], tvm.ir.GenericConst):
        # The lanes that fill up are divided by one.
        return Demand(dict.fromkeys([PLAIN, *lanes.blocks(channels)], 0.0), demand.operands)
    return demand


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
    demand = _in_registers(_pointwise(call, parts.fields, lanes), lanes)
    results = {
        block: cost
        for block, cost in demand.results.items()
        # Only the last block of all may be filled up.
        if block == PLAIN or not any(size % block for size in sizes[:-1])
    }
    return Demand(results, demand.operands)


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


_WINDOWS: dict[str, Callable[[tvm.ir.Call, Lanes], Demand | None]] = {
    "relax.nn.max_pool2d": _windowed,
    "relax.nn.avg_pool2d": _windowed,
    "relax.nn.adaptive_avg_pool2d": _windowed,
    "relax.image.resize2d": _windowed,
    "relax.nn.pad": _pad,
    "relax.mean": _mean,
    "relax.concat": _concat,
    "relax.strided_slice": _slice,
}


def axes(call: tvm.ir.Call) -> list[int]:
    """Return the axes of a transposition of four axes, an empty list for any other."""
    order = call.attrs.axes
    return [] if order is None or len(order) != 4 else [int(a) % 4 for a in order]


def _operands(values: Iterable[relax.Expr], takes: Takes) -> tuple[Operand, ...]:
    return tuple(Operand(value, takes) for value in values if isinstance(value, relax.Var))


def _same(have: int, result: int) -> bool:
    return have == result
