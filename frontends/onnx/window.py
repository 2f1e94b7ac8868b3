"""Explicit and automatic padding of the sliding windows of Conv and Pool."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from frontends.dims import Dim, DimArithmetic, is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import read_sizes
from frontends.onnx.value import Value, dim_array
from frontends.sliding_window import Window

# Relax keeps the padding of its operators in 32 bits.
WIDEST = 2**31 - 1


def read_window(op: Op, kernel: tuple[Dim, ...], spatial: tuple[Dim, ...]) -> Window:
    """Read strides, dilations and pads of a node, and resolve `auto_pad`."""
    rank = len(kernel)
    strides = tuple(op.attr("strides") or [1] * rank)
    dilations = tuple(op.attr("dilations") or [1] * rank)
    pads: list[Dim] = list(op.attr("pads") or [0] * (2 * rank))
    auto = op.attr("auto_pad", "NOTSET") or "NOTSET"
    if not len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise InvalidModel("strides, dilations, pads and the kernel differ in rank")
    if len(spatial) != rank:
        raise InvalidModel(f"a kernel of rank {rank} over {len(spatial)} spatial axes")
    known = [size for size in kernel if is_static(size)]
    if min((*known, *strides, *dilations), default=1) < 1:
        raise InvalidModel("strides, dilations and kernel sizes must be positive")
    require_widths(pads)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(rank):
            total = same_padding(
                op.arithmetic,
                spatial[axis],
                (kernel[axis] - 1) * dilations[axis] + 1,
                strides[axis],
            )
            small = op.arithmetic.truncdiv(total, 2)
            big = op.arithmetic.simplify(total - small)
            pads[axis], pads[rank + axis] = (small, big) if auto == "SAME_UPPER" else (big, small)
    elif auto == "VALID":
        pads = [0] * (2 * rank)
    begin, end = tuple(pads[:rank]), tuple(pads[rank:])
    return Window(tuple(kernel), strides, dilations, begin, end, auto != "NOTSET")


def require_widths(pads: Sequence[Dim]) -> None:
    """Raise InvalidModel if a known width of padding is beyond what an attribute can hold."""
    for width in pads:
        if is_static(width) and abs(int(width)) > WIDEST:
            raise InvalidModel(f"a padding of {width} is wider than {WIDEST}")


def state_that_it_fits(
    op: Op,
    window: Window,
    spatial: tuple[Dim, ...],
    outputs: tuple[Dim, ...],
    *,
    ceil: bool = False,
) -> None:
    """State that a window has a place on every axis whose size only a run knows.

    Nothing is the result where it does not fit by one element: no other runtime returns that. With
    `ceil`, a part of the window is enough.
    """
    for axis, (length, count) in enumerate(zip(spatial, outputs, strict=True)):
        room = op.arithmetic.simplify(count - 1)
        if window.is_static and not ceil:
            padding = int(window.begin[axis]) + int(window.end[axis])
            room = op.arithmetic.simplify(length + padding - window.extent(axis))
        if is_static(room) or op.arithmetic.is_nonnegative(room):
            continue
        op.require(room >= 0, f"window_fits_axis_{axis}")
        least = op.arithmetic.simplify(length - room)
        if isinstance(length, tirx.Var) and is_static(least) and not op.builder.functions.frame:
            # It holds from here on: the windows that follow need no check of their own.
            op.arithmetic.at_least(length, int(least))


def same_padding(arithmetic: DimArithmetic, length: Dim, extent: Dim, stride: int) -> Dim:
    """Return the padding of one axis that makes the output ceil(length / stride) long."""
    if stride == 1:
        return extent - 1
    outputs = arithmetic.truncdiv(length + stride - 1, stride)
    needed = arithmetic.simplify((outputs - 1) * stride + extent - length)
    return arithmetic.maximum(needed, 0)


def named_sizes(op: Op, dims: Sequence[Dim]) -> list[Dim]:
    """Return sizes with a fresh symbol, read at run time, in place of each compound expression.

    A kernel repeats its sizes in every index: with the expressions it would compile for seconds.
    """
    compound = [not is_static(dim) and not isinstance(dim, tirx.Var) for dim in dims]
    if not any(compound):
        return list(dims)
    op.inputs.append(Value.of_dims("sizes", dim_array(list(dims))))
    try:
        vector = op.x(len(op.inputs) - 1)
    finally:
        op.inputs.pop()
    read = read_sizes(op, vector)
    return [new if named else dim for dim, new, named in zip(dims, read, compound, strict=True)]
