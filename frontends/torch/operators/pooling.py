"""Pooling over two spatial axes (one-dimensional pooling arrives as two-dimensional)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.max_pool2d_with_indices.default")
def max_pool2d(
    b: GraphBuilder,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[relax.Expr, None]:
    """The maximum of each window; the indices, which only training reads, are not computed."""
    kernel, pads = _pair(kernel_size), _pair(padding)
    data, unbatched = _batched(b, x)
    result = b.emit(
        relax.op.nn.max_pool2d(
            data,
            pool_size=kernel,
            strides=_pair(stride) if stride else kernel,
            padding=(*pads, *pads),
            dilation=_pair(dilation),
            ceil_mode=ceil_mode,
        )
    )
    return b.fit(_unbatched(b, result, unbatched)), None


@converter("aten.avg_pool2d.default")
def avg_pool2d(
    b: GraphBuilder,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> relax.Expr:
    """The mean of each window, over `divisor_override` elements where that is given."""
    kernel, pads = _pair(kernel_size), _pair(padding)
    strides = _pair(stride) if stride else kernel
    data, unbatched = _batched(b, x)
    if not ceil_mode and divisor_override is None:
        result = b.emit(
            relax.op.nn.avg_pool2d(
                data,
                pool_size=kernel,
                strides=strides,
                padding=(*pads, *pads),
                count_include_pad=count_include_pad,
            )
        )
        return _unbatched(b, result, unbatched)
    return _unbatched(
        b,
        _sum_over_divisor(b, data, kernel, strides, pads, count_include_pad, divisor_override),
        unbatched,
    )


def _sum_over_divisor(
    b: GraphBuilder,
    data: relax.Expr,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int],
    count_include_pad: bool,
    divisor_override: int | None,
) -> relax.Expr:
    """Average the zero-padded input over whole windows, then correct each window's divisor.

    With `ceil_mode` a last window may hang over the padded edge; torch divides it by the elements
    within the padding only. The divisor depends on the window's place alone, so it is a constant.
    """
    sizes = b.static_shape(data)[2:]
    outs = [b.static(size) for size in b.result_shape[-2:]]
    axes = list(zip(sizes, outs, kernel, strides, pads, strict=True))
    after = [max((out - 1) * s + k - size - p, 0) for size, out, k, s, p in axes]
    padded = relax.op.nn.pad(data, [0, 0, 0, 0, pads[0], after[0], pads[1], after[1]])
    means = b.emit(relax.op.nn.avg_pool2d(b.emit(padded), pool_size=kernel, strides=strides))
    for axis, out in enumerate(outs):
        means = b.slice_axis(means, axis + 2, 0, out) if b.shape(means)[axis + 2] != out else means
    area = kernel[0] * kernel[1]
    if divisor_override is not None:
        return b.emit(relax.op.multiply(means, relax.const(area / divisor_override, b.dtype)))
    counts = [_window_counts(*axis, count_include_pad) for axis in axes]
    factor = area / (counts[0][:, None] * counts[1][None, :])
    return b.emit(relax.op.multiply(means, relax.const(factor.astype(b.dtype)[None, None])))


def _window_counts(
    size: int, out: int, kernel: int, stride: int, pad: int, count_include_pad: bool
) -> np.ndarray:
    """Return how many elements of one axis each window counts."""
    begin = np.arange(out) * stride - pad
    end = np.minimum(begin + kernel, size + pad)
    if not count_include_pad:
        begin, end = np.maximum(begin, 0), np.minimum(end, size)
    return (end - begin).astype("float64")


@converter("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each of `output_size` windows that tile the input."""
    data, unbatched = _batched(b, x)
    sizes = [b.static(size) for size in b.result_shape[-2:]]
    result = b.emit(relax.op.nn.adaptive_avg_pool2d(data, sizes))
    return _unbatched(b, result, unbatched)


@converter("aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each of `output_size` windows that tile the last axis."""
    data = b.tensor(x)
    shape = b.shape(data)
    flat = b.reshape(data, [*([1] if len(shape) == 2 else []), *shape[:-1], 1, shape[-1]])
    out = b.static(b.result_shape[-1])
    return b.reshape(b.emit(relax.op.nn.adaptive_avg_pool2d(flat, [1, out])), b.result_shape)


@converter("aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(b: GraphBuilder, x: Value, output_size: Any) -> relax.Expr:
    """The mean of each window that tiles the three spatial axes."""
    return relax.op.nn.adaptive_avg_pool3d(b.tensor(x), [b.static(s) for s in b.result_shape[-3:]])


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


def _batched(b: GraphBuilder, x: Value) -> tuple[relax.Expr, bool]:
    data = b.tensor(x)
    if data.ty.ndim == 4:
        return data, False
    return b.emit(relax.op.expand_dims(data, 0)), True


def _unbatched(b: GraphBuilder, x: relax.Expr, unbatched: bool) -> relax.Expr:
    return b.emit(relax.op.squeeze(x, [0])) if unbatched else x
