"""Padding with a number, or with elements of the tensor itself."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from frontends.computations.pad import pad
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.symbolic_shapes import Size


@converter(
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
)
def reflection_pad(b: GraphBuilder, x: Value, padding: Any) -> relax.Expr:
    """Mirror the tensor at its border elements, which are not repeated."""
    return _pad(b, x, padding, "reflect")


@converter(
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
)
def replication_pad(b: GraphBuilder, x: Value, padding: Any) -> relax.Expr:
    """Repeat the border elements."""
    return _pad(b, x, padding, "edge")


@converter("aten._pad_circular.default")
def circular_pad(b: GraphBuilder, x: Value, pad: Any) -> relax.Expr:
    """Continue with the other end."""
    return _pad(b, x, pad, "wrap")


@converter("aten.constant_pad_nd.default")
def constant_pad(b: GraphBuilder, x: Value, pad: Any, value: float = 0) -> relax.Expr:
    """Pad with a number."""
    data = b.tensor(x)
    value = bool(value) if b.dtype == "bool" else value
    before, after = _by_axis(b, pad, data.ty.ndim)
    if not all(isinstance(width, int) for width in before + after):
        return _pad(b, data, pad, "constant", value)
    widths = list(zip(before, after, strict=True))
    for axis, (first, last) in enumerate(widths):
        length = b.shape(data)[axis]
        if first < 0 or last < 0:
            data = b.slice_axis(data, axis, max(-first, 0), length + min(last, 0))
    positive = [max(width, 0) for pair in widths for width in pair]
    return relax.op.nn.pad(data, positive, pad_value=value) if any(positive) else data


def _by_axis(b: GraphBuilder, widths: Any, rank: int) -> tuple[list[Any], list[Any]]:
    """Return what is added before and after each axis; `widths` begins with the last axis."""
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for number, width in enumerate(widths):
        side = after if number % 2 else before
        side[-1 - number // 2] = b.size(width)
    return before, after


def _pad(b: GraphBuilder, x: Value, widths: Any, mode: str, value: float = 0) -> relax.Expr:
    """Pad the last axes, by symbolic widths too. Negative widths cut."""
    data, rank = b.tensor(x), len(b.result_shape)
    before, after = _by_axis(b, widths, rank)
    fill = tirx.const(value, b.dtype)
    return b.te(
        lambda t, s: pad(t, s[rank : 2 * rank], s[2 * rank :], mode, fill, s[:rank]),
        data, name="pad", dims=[*b.result_shape, *before, *after],
    )  # fmt: skip
