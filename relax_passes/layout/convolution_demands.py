"""What convolutions demand: the blocks they write, and those they sum over."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import tvm

from relax_passes.layout.blocked import dims_of
from relax_passes.layout.demand import (
    CYCLES_PER_ELEMENT,
    PLAIN,
    Demand,
    elements,
    operands,
    same_layout,
)
from relax_passes.layout.lanes import Lanes, fill_up
from relax_passes.layout.obstacles import convolution_obstacle, transpose_obstacle

# An image of so few channels is read in NCHW: each element is fetched alone in either layout.
FEW_CHANNELS = 4
# What a product with a permuted register costs: one permutation serves about two and a half.
_PERMUTED = 1.4


def convolution_demand(call: tvm.ir.Call, lanes: Lanes, fma_units: int) -> Demand | None:
    """Return what a convolution demands, None if it stays in NCHW."""
    if convolution_obstacle(call, lanes) is not None:
        return None
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
        return Demand(costs(lanes.blocks(out)), operands([data], same_layout))
    if groups > 1 and lanes.one_block:
        whole = groups * per_group
        return Demand(costs([out]), operands([data], lambda have, _: have == whole))
    if groups > 1:
        found = costs([lanes.choose_even(out // groups)])
        if has_groups_in_lanes(call, lanes.count, lanes):
            found[lanes.count] = _PERMUTED * costs([lanes.count])[lanes.count]
        inner = lanes.choose_even(per_group)

        def takes_groups(have: int, result: int) -> bool:
            return have == (result if has_groups_in_lanes(call, result, lanes) else inner)

        return Demand(found, operands([data], takes_groups))

    def takes(have: int, _: int) -> bool:
        if have == PLAIN:
            return per_group <= FEW_CHANNELS
        return sums_over_blocks_of(have, call, lanes)

    short = [b for b in lanes.blocks(out) if not lanes.is_channels_last(b)]
    return Demand(costs(short), operands([data], takes))


def transposed_demand(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    """Return what a transposed convolution demands, None if it stays in NCHW."""
    if transpose_obstacle(call, lanes) is not None:
        return None
    block = lanes.choose_even(int(dims_of(call)[1]))
    return Demand({block: 0.0}, operands([call.args[0]], lambda have, _: have != PLAIN))


def is_depthwise(call: tvm.ir.Call) -> bool:
    """Return whether each channel of a convolution is computed from one of its own."""
    out, per_group = (int(d) for d in dims_of(call.args[1])[:2])
    return int(call.attrs.groups) == out > 1 and per_group == 1


def has_groups_in_lanes(call: tvm.ir.Call, block: int, lanes: Lanes) -> bool:
    """Return whether a convolution in blocks of the given size has several groups in a register.

    Its kernel permutes the lanes. In blocks of one group each, 8 channels would leave half a
    register of 16 idle, and the operators around it work on blocks of 16.
    """
    out, per_group = (int(d) for d in dims_of(call.args[1])[:2])
    return (
        lanes.permutes
        and block == lanes.count
        and 1 < per_group < block <= out == per_group * int(call.attrs.groups)
        and block % per_group == 0
        and block in lanes.blocks(out)
        and isinstance(dims_of(call)[3], tvm.tirx.IntImm)
    )


def sums_over_blocks_of(block: int, call: tvm.ir.Call, lanes: Lanes) -> bool:
    """Return whether a convolution reads its input in blocks of the given size as it is.

    Winograd's sums are taken over blocks of one register: NHWC would rule them out.
    """
    strides, kernel = list(call.attrs.strides), dims_of(call.args[1])[2:]
    winograd = [int(s) for s in (*strides, *kernel)] == [1, 1, 3, 3]
    return not (winograd and lanes.is_channels_last(block))
