"""Which layouts an operator computes in, and which it takes each operand in."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.analysis.channelwise_map import ChannelwiseMap, channelwise_map
from relax_passes.analysis.definitions import axes_of
from relax_passes.layout.blocked import dims_of, has_channels
from relax_passes.layout.channelwise_demands import CHANNELWISE, unary_demand
from relax_passes.layout.convolution_demands import convolution_demand, transposed_demand
from relax_passes.layout.demand import (
    CYCLES_PER_ELEMENT,
    PLAIN,
    Demand,
    elements,
    operands,
    same_layout,
)
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.transforms import TO_CHANNELS_FIRST
from relax_passes.lowering.rule import has_no_elements, is_tensor_of

_GATHERED = 4  # times as long an element gathered alone takes as one of a register


def demand_of(call: tvm.ir.Call, lanes: Lanes, fma_units: int, mod: tvm.IRModule) -> Demand | None:
    """Return what `call` demands, None if it computes in NCHW alone; `mod` holds its kernels."""
    tensors = [call, *(a for a in call.args if is_tensor_of(lanes.types, a))]
    if not is_tensor_of(lanes.types, call) or not has_channels(call):
        return None
    if any(map(has_no_elements, tensors)):
        return None
    name = call.op.name
    if name == "relax.nn.conv2d":
        return convolution_demand(call, lanes, fma_units)
    if name == "relax.nn.conv2d_transpose":
        return transposed_demand(call, lanes)
    if name == "relax.permute_dims":
        return _from_channels_last(call, lanes)
    if name == "relax.astype":  # rounds what a convolution sums in float32
        rounds = lanes.one_block and is_tensor_of(lanes.types, call.args[0])
        return unary_demand(call, lanes) if rounds else None
    if name == "relax.call_tir":
        found = channelwise_map(call, mod)
        if found is None or not is_tensor_of(lanes.types, found.data):
            return None
        return _map(found, lanes)
    demand = CHANNELWISE.get(name)
    return None if demand is None else demand(call, lanes)


def cast_demand(binding: relax.MatchCast, lanes: Lanes) -> Demand | None:
    """Return what a check of an image's sizes demands: it moves nothing, and takes any layout."""
    value, result = binding.value, binding.var
    if not all(is_tensor_of(lanes.types, x) and has_channels(x) for x in (value, result)):
        return None
    channels = int(dims_of(result)[1])
    if int(dims_of(value)[1]) != channels or has_no_elements(value) or has_no_elements(result):
        return None
    layouts = [PLAIN, *lanes.blocks(channels)]
    return Demand(dict.fromkeys(layouts, 0.0), operands([value], same_layout))


def _map(found: ChannelwiseMap, lanes: Lanes) -> Demand:
    """Return the demand of a kernel that computes each channel alone, as resampling does."""
    channels = int(dims_of(found.call)[1])
    moved = elements(found.call) * CYCLES_PER_ELEMENT
    # In NCHW a row's elements are gathered one by one.
    results = {PLAIN: _GATHERED * moved}
    blocks = lanes.blocks(channels)
    results.update({b: moved for b in blocks if lanes.one_block or channels % b == 0})
    return Demand(results, operands([found.data], same_layout))


def _from_channels_last(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    """Return the demand of NHWC as a value in NCHW: blocks of all channels are what it is."""
    if axes_of(call) != TO_CHANNELS_FIRST:
        return None
    channels = int(dims_of(call)[1])
    moved = elements(call) * CYCLES_PER_ELEMENT
    costs = {block: 0.0 if block == channels else moved for block in lanes.blocks(channels)}
    return Demand({PLAIN: moved, **costs}, ())
