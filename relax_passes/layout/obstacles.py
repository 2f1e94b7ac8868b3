"""Why a convolution stays in NCHW."""

from __future__ import annotations

import tvm

from relax_passes.layout.blocked import has_channels
from relax_passes.layout.channels_last import BYTES
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.transposed_convolution import phases_of
from relax_passes.lowering.rule import dtype_of, static_shape


def convolution_obstacle(call: tvm.ir.Call, lanes: Lanes) -> str | None:
    """Return why a convolution stays in NCHW, None if it can be computed in blocks."""
    return _obstacle(call, "OIHW", lanes) or _empty_kernel(call)


def transpose_obstacle(call: tvm.ir.Call, lanes: Lanes) -> str | None:
    """Return why a transposed convolution cannot be one ordinary convolution, None if it can."""
    obstacle = _obstacle(call, "IOHW", lanes)
    if obstacle is not None:
        return obstacle
    if int(call.attrs.groups) != 1 or any(int(d) != 1 for d in call.attrs.dilation):
        return "it has groups or dilation"
    if (empty := _empty_kernel(call)) is not None:
        return empty
    return "its padding exceeds its kernel" if phases_of(call) is None else None


def _obstacle(call: tvm.ir.Call, kernel_layout: str, lanes: Lanes) -> str | None:
    """Return what keeps a kernel of the given layout from being packed."""
    data, weight = call.args
    attrs = call.attrs
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    if layouts != ("NCHW", kernel_layout, "NCHW"):
        return "its layout is not NCHW"
    if static_shape(weight) is None or not has_channels(data) or not has_channels(call):
        return "its channels or its kernel are symbolic"
    types = {dtype_of(data), dtype_of(weight)}
    if types & BYTES and (dtype_of(call) != "int32" or not types <= BYTES):
        return f"its sums are {dtype_of(call)}"
    return None if types <= lanes.convolved else f"its type is {dtype_of(weight)}"


def _empty_kernel(call: tvm.ir.Call) -> str | None:
    return "its kernel is empty" if 0 in (static_shape(call.args[1]) or ()) else None
