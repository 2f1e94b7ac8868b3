"""The border of an image in NCHW[x]c layout, as a stage of its own."""

from __future__ import annotations

from tvm import te, tirx
from tvm.sym import Analyzer

from tir_schedules.operand_view import OperandView

PAD = "pad_border"

Padding = tuple[int, int, int, int]


def pad_border(
    data: te.Tensor | OperandView,
    padding: Padding,
    height: tirx.Expr | int,
    width: tirx.Expr | int,
    fill: tirx.Expr | None = None,
) -> te.Tensor:
    """Return `data` (N, C/b, H, W, b) with a border around, of the given height and width.

    Args:
        data: Image in blocked layout.
        padding: Border as (top, left, bottom, right); only top and left shift the image, what
            `height` and `width` leave below and right of it is border.
        height: Rows of the result.
        width: Columns of the result.
        fill: What the border holds, zero by default.
    """
    outside = tirx.const(0, data.dtype) if fill is None else fill
    top, left, bottom, right = padding
    rows, cols = data.shape[2], data.shape[3]

    def value(n: tirx.Var, c: tirx.Var, y: tirx.Var, x: tirx.Var, b: tirx.Var) -> tirx.Expr:
        inside = []
        if top:
            inside.append(y >= top)
        if not _same(height, rows + top):
            inside.append(y < rows + top)
        if left:
            inside.append(x >= left)
        if not _same(width, cols + left):
            inside.append(x < cols + left)
        pixel = data[n, c, y - top, x - left, b]
        return tirx.if_then_else(tirx.all(*inside), pixel, outside) if inside else pixel

    shape = (data.shape[0], data.shape[1], height, width, data.shape[4])
    return te.compute(shape, value, name=PAD)


def out_extent(
    size: tirx.Expr | int, before: int, after: int, kernel: int, stride: int, dilation: int
) -> tirx.Expr | int:
    """Return how many windows of a kernel fit along one padded axis, as simple as it gets.

    A symbolic extent is part of the types that the next layers start from, and of every index
    into the result: unless it is simplified, it grows with the depth of the network.
    """
    span = size + (before + after - (kernel - 1) * dilation - 1)
    if isinstance(span, int):
        return span // stride + 1
    return Analyzer().simplify(tirx.indexdiv(span, stride) + 1)


def static(size: tirx.Expr | int) -> tirx.Expr | int:
    """Return a constant extent as an int, a symbolic one as it is."""
    return int(size) if isinstance(size, int | tirx.IntImm) else size


def _same(left: tirx.Expr | int, right: tirx.Expr | int) -> bool:
    left, right = static(left), static(right)
    return isinstance(left, int) and isinstance(right, int) and left == right
