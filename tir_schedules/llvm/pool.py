"""Pooling in NCHW[x]c layout: windows of one row of pixels, channels in vector lanes."""

from __future__ import annotations

from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer

from tir_schedules.blocks import (
    PARALLEL_WORK,
    extents,
    leaf_blocks,
    points,
    vectorize_lane,
    vectorize_wide,
)
from tir_schedules.llvm.register_tile import anchored_rule
from tir_schedules.llvm.spatial_pad import PAD, Padding, pad_border, static
from tir_schedules.machine import Machine

TAG = "pool_nchwc"
# Windows of more positions keep a loop over their rows.
_MAX_UNROLLED_TAPS = 10


def _larger(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Return the larger of two values, NaN when either is NaN: compare and blend, no call."""
    return tirx.Select(tirx.any(x > y, tirx.isnan(x)), x, y)


def _lowest(dtype: str, _: object = None) -> tirx.Expr:
    dtype = str(dtype)  # TE hands over its own type object
    return te.min_value(dtype) if not dtype.startswith("float") else -tirx.infinity(dtype)


_nan_max = te.comm_reducer(_larger, _lowest, name="nan_max")


def pool_extent(
    size: tirx.Expr | int,
    before: int,
    after: int,
    kernel: int,
    stride: int,
    dilation: int,
    ceil_mode: bool,
) -> tirx.Expr | int:
    """Return how many windows an axis has.

    With `ceil_mode` the last one may hang over the end, but starts inside the image or the
    padding before it (as in PyTorch and ONNX 19).
    """
    span = size + (before + after - (kernel - 1) * dilation - 1)
    if not ceil_mode:
        return span // stride + 1 if isinstance(span, int) else _windows(span, stride)
    if isinstance(span, int) and isinstance(size, int):
        count = -(-span // stride) + 1
        return count - 1 if (count - 1) * stride >= size + before else count
    return _windows(span + (stride - 1), stride)


def _windows(span: tirx.Expr, stride: int) -> tirx.Expr:
    return Analyzer().simplify(tirx.indexdiv(span, stride) + 1)


def pool2d_nchwc(
    data: te.Tensor,
    kind: str,
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    count_include_pad: bool = False,
    ceil_mode: bool = False,
) -> te.Tensor:
    """Pool windows of a blocked image.

    Args:
        data: Image (N, C/b, H, W, b).
        kind: "max" (NaN propagates, padding never wins) or "avg".
        kernel: Rows and columns of a window.
        strides: Steps down and right.
        padding: Border as (top, left, bottom, right).
        dilation: Distance of a window's rows and columns.
        count_include_pad: Whether an average counts the border (never what hangs over it).
        ceil_mode: Whether a window may hang over the end.

    Returns:
        Tensor (N, C/b, OH, OW, b).

    Raises:
        ValueError: If `kind` is another.
    """
    if kind not in ("max", "avg"):
        raise ValueError(f"a pool is 'max' or 'avg', not {kind!r}")
    batch, blocks, height, width, lanes = (static(extent) for extent in data.shape)
    (kh, kw), (sh, sw), (dh, dw) = kernel, strides, dilation
    top, left, bottom, right = padding
    oh = pool_extent(height, top, bottom, kh, sh, dh, ceil_mode)
    ow = pool_extent(width, left, right, kw, sw, dw, ceil_mode)
    ky = te.reduce_axis((0, kh), name="ky")
    kx = te.reduce_axis((0, kw), name="kx")
    # What windows may read beyond the image, on each side of each axis.
    over_y = _reaches_out(height, top, oh, kh, sh, dh)
    over_x = _reaches_out(width, left, ow, kw, sw, dw)
    neutral = _lowest(data.dtype) if kind == "max" else tirx.const(0, data.dtype)

    if any((*over_y, *over_x)):
        # Rows with their border are copied once a task, so that no tap tests where it is.
        rows, columns = (oh - 1) * sh + (kh - 1) * dh + 1, (ow - 1) * sw + (kw - 1) * dw + 1
        data = pad_border(data, padding, rows, columns, neutral)

    def window(n: tirx.Var, c: tirx.Var, y: tirx.Var, x: tirx.Var, b: tirx.Var) -> tirx.Expr:
        value = data[n, c, y * sh + ky * dh, x * sw + kx * dw, b]
        return (_nan_max if kind == "max" else te.sum)(value, axis=[ky, kx])

    pooled = te.compute(
        (batch, blocks, oh, ow, lanes),
        window,
        name=f"{kind}_pool_tiles",
        attrs={"schedule_rule": TAG},
    )

    def result(n: tirx.Var, c: tirx.Var, y: tirx.Var, x: tirx.Var, b: tirx.Var) -> tirx.Expr:
        value = pooled[n, c, y, x, b]
        if kind == "max":
            return value
        rows = _counted(y, height, top, bottom, kh, sh, dh, count_include_pad, over_y)
        cols = _counted(x, width, left, right, kw, sw, dw, count_include_pad, over_x)
        count = rows * cols
        if isinstance(count, int):
            return value * tirx.const(1.0 / count, data.dtype)
        return value / te.max(count, 1).astype(data.dtype)

    return te.compute((batch, blocks, oh, ow, lanes), result, name=f"{kind}_pool")


def _reaches_out(
    size: tirx.Expr | int,
    before: int,
    count: tirx.Expr | int,
    kernel: int,
    stride: int,
    dilation: int,
) -> tuple[bool, bool]:
    """Tell whether windows read before the first, and after the last element of an axis."""
    if not isinstance(size, int) or not isinstance(count, int):
        return before > 0, True
    return before > 0, (count - 1) * stride + (kernel - 1) * dilation - before >= size


def _counted(
    at: tirx.Expr,
    size: tirx.Expr | int,
    before: int,
    after: int,
    kernel: int,
    stride: int,
    dilation: int,
    include_pad: bool,
    over: tuple[bool, bool],
) -> tirx.Expr | int:
    """Return how many elements of an axis the average of window `at` counts."""
    if not any(over):
        return kernel
    first, last = (-before, size + after) if include_pad else (0, size)
    start = at * stride - before
    # Positions start + k * dilation that lie in [first, last).
    skipped = tirx.indexdiv(te.max(first - start, 0) + (dilation - 1), dilation)
    reached = tirx.indexdiv(te.max(last - start, 0) + (dilation - 1), dilation)
    return te.min(reached, kernel) - skipped


def global_avg_pool_nchwc(data: te.Tensor) -> te.Tensor:
    """Average each channel of a blocked image (N, C/b, H, W, b).

    Returns:
        Tensor (N, C/b, 1, 1, b).
    """
    batch, blocks, height, width, lanes = (static(extent) for extent in data.shape)
    y = te.reduce_axis((0, height), name="ky")
    x = te.reduce_axis((0, width), name="kx")
    total = te.compute(
        (batch, blocks, 1, 1, lanes),
        lambda n, c, _y, _x, b: te.sum(data[n, c, y, x, b], axis=[y, x]),
        name="global_pool_tiles",
        attrs={"schedule_rule": TAG},
    )
    count = height * width
    scale = tirx.const(1.0, data.dtype) / (
        tirx.const(count, data.dtype) if isinstance(count, int) else count.astype(data.dtype)
    )
    return te.compute(total.shape, lambda *index: total(*index) * scale, name="global_avg_pool")


def _tile(sch: s_tir.Schedule, anchor: SBlockRV, epilogue: SBlockRV, machine: Machine) -> None:
    batch, block, y, x, lane, ky, kx = sch.get_loops(anchor)
    sizes = extents(sch, [batch, block, y, x, lane, ky, kx])
    taps = points(sizes[-2:])
    sch.reorder(batch, block, y, x, ky, kx, lane)
    task = sch.fuse(batch, block, y)
    # A tap of a whole vector costs about as much as one scalar operation.
    if points(sizes) // machine.lanes() >= PARALLEL_WORK // 4 and machine.cores > 1:
        sch.parallel(task)
    sch.set_scope(anchor, 0, "local")
    if taps <= _MAX_UNROLLED_TAPS:
        sch.unroll(ky)
        sch.unroll(kx)
    vectorize_wide(sch, lane)
    sch.reverse_compute_at(epilogue, x)
    vectorize_lane(sch, epilogue, x)
    init = sch.decompose_reduction(anchor, ky)
    vectorize_wide(sch, sch.get_loops(init)[-1])
    for stage in leaf_blocks(sch):
        if str(sch.get(stage).name_hint) == PAD:
            sch.compute_at(stage, task, preserve_unit_loops=True)
            vectorize_wide(sch, sch.get_loops(stage)[-1])


RULE = anchored_rule("pool", TAG, _tile)
