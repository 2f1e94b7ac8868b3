"""Pooling over one to three spatial axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from frontends.computations import window_pool
from frontends.computations.adaptive_pool import adaptive_average, adaptive_maximum
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import spread

_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


@converter("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    b: GraphBuilder,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[relax.Expr, relax.Expr | None]:
    """The maximum of each window and, if asked for, its place in the plane."""
    rank = 3 if "pool3d" in str(b.node.target) else 2
    kernel, pads = spread(kernel_size, rank), spread(padding, rank)
    strides = spread(stride, rank) if stride else kernel
    dilations = spread(dilation, rank)
    data = _batched(b, x, rank)
    outputs = b.result_shape[-rank:]
    windows = window_pool.Windows(kernel, strides, dilations, pads, outputs)
    if b.dtype.startswith("float"):
        raw = _MAX[rank](data, kernel, strides, (*pads, *pads), dilations, ceil_mode)
        values = b.fit(_unbatched(b, b.emit(raw), rank))
    else:
        raw = b.te(
            lambda t, dims: window_pool.max_pool(t, replace(windows, outputs=dims)), data,
            name="max_pool", dims=outputs,
        )  # fmt: skip
        values = _unbatched(b, raw, rank)
    if not b.is_read(1):
        return values, None
    places = b.te(
        lambda t, m, dims: window_pool.max_places(
            t, m, replace(windows, outputs=dims), column_major=False
        ),
        data, _batched(b, values, rank), name="max_pool_places", dims=outputs,
    )  # fmt: skip
    planes = b.te(lambda p, t: window_pool.within_plane(p, t), places, data, name="plane_places")
    return values, _unbatched(b, planes, rank)


@converter("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    b: GraphBuilder,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> relax.Expr:
    """The mean of each window, over `divisor_override` elements where that is given.

    With `ceil_mode` a last window may hang over the padded edge; it is divided by the elements
    within the padding only.
    """
    rank = int(str(b.node.target).split("avg_pool")[1][0])
    kernel, pads = spread(kernel_size, rank), spread(padding, rank)
    strides = spread(stride, rank) if stride else kernel
    data = _batched(b, x, rank)
    if not ceil_mode and divisor_override is None and b.dtype.startswith("float"):
        result = _AVERAGE[rank](
            data, kernel, strides, (*pads, *pads), count_include_pad=count_include_pad
        )
        return _unbatched(b, b.emit(result), rank)
    outputs, sizes = b.result_shape[-rank:], b.shape(data)[2:]
    windows = window_pool.Windows(kernel, strides, [1] * rank, pads, outputs)
    low = [-width if count_include_pad else 0 for width in pads]

    def compute(t: Any, dims: list[Any]) -> Any:
        over = replace(windows, outputs=dims[:rank])
        if divisor_override is not None:
            return window_pool.scaled_sum_pool(t, over, divisor_override)
        ends = [
            size + (width if count_include_pad else 0)
            for size, width in zip(dims[rank:], pads, strict=True)
        ]
        return window_pool.average_pool(t, over, low, ends)

    return _unbatched(b, b.te(compute, data, name="avg_pool", dims=[*outputs, *sizes]), rank)


@converter("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each of `output_size` windows that tile the input."""
    data = _batched(b, x, 2)
    sizes = b.result_shape[-2:]
    if all(isinstance(size, int) and size > 0 for size in sizes):
        return _unbatched(b, b.emit(relax.op.nn.adaptive_avg_pool2d(data, sizes)), 2)
    return _unbatched(b, b.te(adaptive_average, data, dims=sizes), 2)


@converter("aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each of `output_size` windows that tile the last axis."""
    data = b.tensor(x)
    shape = b.shape(data)
    flat = b.reshape(data, [*([1] if len(shape) == 2 else []), *shape[:-1], 1, shape[-1]])
    out = b.static(b.result_shape[-1])
    return b.reshape(b.emit(relax.op.nn.adaptive_avg_pool2d(flat, [1, out])), b.result_shape)


@converter("aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each window that tiles the three spatial axes."""
    data = _batched(b, x, 3)
    return _unbatched(b, b.te(adaptive_average, data, dims=b.result_shape[-3:]), 3)


@converter("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(b: GraphBuilder, x: Value, output_size: Any) -> tuple[relax.Expr, relax.Expr]:
    """The maximum of each window that tiles the spatial axes, and its place in the plane."""
    rank = 3 if "pool3d" in str(b.node.target) else 2
    data = _batched(b, x, rank)
    both = b.te(adaptive_maximum, data, dims=b.result_shape[-rank:])
    values, places = (_unbatched(b, part, rank) for part in b.parts(both, 2))
    return values, places


def _batched(b: GraphBuilder, x: Value, rank: int) -> relax.Expr:
    data = b.tensor(x)
    shape: list[Size] = b.shape(data)
    return data if len(shape) == rank + 2 else b.reshape(data, [1, *shape])


def _unbatched(b: GraphBuilder, x: relax.Expr, rank: int) -> relax.Expr:
    """Drop the batch axis of one element that `_batched` had added."""
    return x if len(b.result_shape) == rank + 2 else b.reshape(x, b.shape(x)[1:])
