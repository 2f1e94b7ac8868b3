"""Operators that are linear in their data and have a weight: convolutions and matrix products.

What the passes that move scales and shifts through them ask: where the channels are, and what a
scale or a shift of the channels is worth in the weight. Computed in float64, rounded once.
"""

from __future__ import annotations

import numpy as np
import tvm

from relax_passes.pass_base import PassContext

MATMUL = "relax.matmul"
KERNEL_LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW"),
}


def keeps_every_scale(ctx: PassContext, name: str) -> bool:
    """Tell whether the precision forbids pass `name` to fold scales; it is declined if so."""
    if ctx.precision != "strict":
        return False
    reason = 'a weight times a scale rounds where precision "strict" keeps the model\'s order'
    ctx.log.decline(name, "every scale", reason)
    return True


def is_linear(name: str) -> bool:
    """Return whether an operator is a convolution or a matrix product."""
    return name in KERNEL_LAYOUTS or name == MATMUL


def is_transposed(call: tvm.ir.Call) -> bool:
    """Return whether a call is a transposed convolution."""
    return str(call.op.name).endswith("_transpose")


def has_usual_layout(call: tvm.ir.Call) -> bool:
    """Return whether a convolution reads and writes NC..., its kernel being OI... or IO..."""
    attrs = call.attrs
    data, kernel = KERNEL_LAYOUTS[call.op.name]
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != (data, kernel):
        return False
    return str(attrs.out_layout) in ("", data)


def output_channels(call: tvm.ir.Call, shape: tuple[int, ...]) -> int:
    """Return the number of output channels of a call whose weight has this shape."""
    if call.op.name == MATMUL:
        return shape[1]
    return shape[1] * int(call.attrs.groups) if is_transposed(call) else shape[0]


def input_channels(call: tvm.ir.Call, shape: tuple[int, ...]) -> int:
    """Return the number of input channels of a call whose weight has this shape."""
    if call.op.name == MATMUL or is_transposed(call):
        return shape[0]
    return shape[1] * int(call.attrs.groups)


def scale_outputs(call: tvm.ir.Call, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the weight with each output channel scaled, `scale` of shape (channels,)."""
    wide = weight.astype("float64")
    if call.op.name == MATMUL:
        wide = wide * scale
    elif is_transposed(call):
        groups = int(call.attrs.groups)
        i, o, *window = wide.shape
        per_group = wide.reshape(groups, i // groups, o, *window)
        factors = scale.reshape(groups, 1, o, *[1] * len(window))
        wide = (per_group * factors).reshape(weight.shape)
    else:
        wide = wide * scale.reshape(-1, *[1] * (wide.ndim - 1))
    return wide.astype(weight.dtype)


def scale_inputs(call: tvm.ir.Call, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the weight for data whose input channels are no longer scaled by `scale`."""
    wide = weight.astype("float64")
    if call.op.name == MATMUL or is_transposed(call):
        wide = wide * scale.reshape(-1, *[1] * (wide.ndim - 1))
    else:
        groups = int(call.attrs.groups)
        o, i, *window = wide.shape
        per_group = wide.reshape(groups, o // groups, i, *window)
        factors = scale.reshape(groups, 1, i, *[1] * len(window))
        wide = (per_group * factors).reshape(weight.shape)
    return wide.astype(weight.dtype)


def constant_response(call: tvm.ir.Call, weight: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return what data that is `shift` in each input channel gives in each output channel.

    Only where every output element sees whole windows: no padding, no transposed convolution.
    """
    wide = weight.astype("float64")
    if call.op.name == MATMUL:
        return shift @ wide
    groups = int(call.attrs.groups)
    taps = wide.reshape(*wide.shape[:2], -1).sum(axis=2)  # output channels x inputs of a group
    per_group = taps.reshape(groups, -1, taps.shape[1])
    return np.einsum("goi,gi->go", per_group, shift.reshape(groups, -1)).reshape(-1)


def per_channel(value: np.ndarray, channels: int, axis: int, rank: int) -> np.ndarray | None:
    """Return a constant as one number per channel, None where it varies along another axis."""
    if value.ndim > rank or value.dtype.kind != "f":
        return None
    shape = (1,) * (rank - value.ndim) + value.shape
    if any(d != 1 for place, d in enumerate(shape) if place != axis):
        return None
    if shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(value.reshape(-1), (channels,)).astype("float64")
