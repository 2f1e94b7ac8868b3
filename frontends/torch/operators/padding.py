"""Padding with elements of the tensor itself."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from frontends.computations.pad import pad
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


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


def _pad(b: GraphBuilder, x: Value, widths: Any, mode: str) -> relax.Expr:
    """Pad the last axes; `widths` begins with the last axis. Negative widths cut."""
    data = b.tensor(x)
    before, after = [0] * data.ty.ndim, [0] * data.ty.ndim
    for number, width in enumerate(widths):
        side = after if number % 2 else before
        side[-1 - number // 2] = b.static(b.size(width))
    fill = tirx.const(0, b.dtype)
    return b.te(
        lambda t, dims: pad(t, before, after, mode, fill, dims),
        data, name="pad", dims=b.result_shape,
    )  # fmt: skip
