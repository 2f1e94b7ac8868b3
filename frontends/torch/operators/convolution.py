"""Convolution in one to three dimensions, plain and transposed."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.computations.convolution import convolve_transposed
from frontends.computations.window_pool import Windows
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import spread

_CONV = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_CONV_TRANSPOSE = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


@converter("aten.convolution.default")
def convolution(
    b: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> relax.Expr:
    """Convolve [N, C, *spatial] with [O, C/groups, *kernel]; transposed takes [C, O/groups, …].

    The bias is a separate addition of shape [1, O, 1, …], as in an imported ONNX graph.
    """
    kernel = b.tensor(weight)
    rank = kernel.ty.ndim - 2
    data = b.tensor(x)
    unbatched = data.ty.ndim == rank + 1
    if unbatched:
        data = b.emit(relax.op.expand_dims(data, 0))
    pads = spread(padding, rank)
    arguments: dict[str, Any] = {
        "strides": spread(stride, rank),
        "padding": (*pads, *pads),
        "dilation": spread(dilation, rank),
        "groups": groups,
    }
    extra = spread(output_padding, rank)
    if transposed and any(e >= s for e, s in zip(extra, arguments["strides"], strict=True)):
        result = _longer_transposed(b, data, kernel, arguments, extra)
    elif transposed:
        arguments["output_padding"] = extra
        result = b.emit(_CONV_TRANSPOSE[rank](data, kernel, **arguments))
    else:
        result = b.emit(_CONV[rank](data, kernel, **arguments))
    if bias is not None:
        channels = b.reshape(b.tensor(bias), [1, -1, *[1] * rank])
        result = b.emit(relax.op.add(result, channels))
    return b.emit(relax.op.squeeze(result, [0])) if unbatched else result


def _longer_transposed(
    b: GraphBuilder,
    data: relax.Expr,
    kernel: relax.Expr,
    arguments: dict[str, Any],
    extra: tuple[int, ...],
) -> relax.Expr:
    """Transposed convolution with more output than Relax's operator takes: its own kernel."""
    rank = len(extra)
    strides, dilations = arguments["strides"], arguments["dilation"]
    pads, taps = arguments["padding"][:rank], b.static_shape(kernel)[2:]
    outputs = [
        (size - 1) * strides[a] - 2 * pads[a] + dilations[a] * (taps[a] - 1) + 1 + extra[a]
        for a, size in enumerate(b.shape(data)[2:])
    ]
    return b.te(
        lambda x, w, dims: convolve_transposed(
            x, w, Windows(taps, strides, dilations, pads, dims), arguments["groups"]
        ),
        data, kernel, name="conv_transpose", dims=outputs,
    )  # fmt: skip
