"""Which layouts an operator computes in, and which it takes each operand in."""

from __future__ import annotations

import tvm

from relax_passes.analysis.definitions import axes_of
from relax_passes.layout.blocked import dims_of, has_channels
from relax_passes.layout.channelwise_demands import CHANNELWISE, unary_demand
from relax_passes.layout.convolution_demands import convolution_demand, transposed_demand
from relax_passes.layout.demand import CYCLES_PER_ELEMENT, PLAIN, Demand, elements
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.transforms import TO_CHANNELS_FIRST
from relax_passes.lowering.rule import has_no_elements, is_tensor_of


def demand_of(call: tvm.ir.Call, lanes: Lanes, fma_units: int) -> Demand | None:
    """Return what `call` demands, None if it computes in NCHW alone."""
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
    demand = CHANNELWISE.get(name)
    return None if demand is None else demand(call, lanes)


def _from_channels_last(call: tvm.ir.Call, lanes: Lanes) -> Demand | None:
    """Return the demand of NHWC as a value in NCHW: blocks of all channels are what it is."""
    if axes_of(call) != TO_CHANNELS_FIRST:
        return None
    channels = int(dims_of(call)[1])
    moved = elements(call) * CYCLES_PER_ELEMENT
    costs = {block: 0.0 if block == channels else moved for block in lanes.blocks(channels)}
    return Demand({PLAIN: moved, **costs}, ())
