"""Which tensors of int16 are 8-bit integers plus a shift: what quantized operators multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relax_passes.analysis.definitions import operator_name
from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.blocked import is_one
from relax_passes.lowering.rule import dtype_of

LookUp = Callable[[relax.Expr], relax.Expr]
Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class ByteOperand:
    """A tensor of int16 as `value`, of int8 or uint8, plus `shift`.

    `shift` is a tensor of int32 that broadcasts to the value; None for 0.
    """

    value: relax.Expr
    shift: relax.Expr | None

    def is_kept(self, axis: int) -> bool:
        """Tell whether the shift is the same along an axis of the value, counted from the end."""
        shape = () if self.shift is None else self.shift.ty.shape.values
        return len(shape) < -axis or is_one(shape[axis])


def byte_operand(look_up: LookUp, emit: Emit, value: relax.Expr) -> ByteOperand | None:
    """Return a tensor of int16 as bytes and a shift, None if it is not known to be that.

    Args:
        look_up: Returns the expression a variable stands for.
        emit: Binds an expression to a variable.
        value: A constant, bytes made wider, or those less (or plus) a zero point.
    """
    if isinstance(value, tvm.ir.GenericConst):
        return _of_constant(array_of(value))
    call = look_up(value)
    if (byte := _widened(call)) is not None:
        return ByteOperand(byte, None)
    if operator_name(call) not in ("subtract", "add"):
        return None
    sign = -1 if operator_name(call) == "subtract" else 1
    for here, other in ((0, 1), (1, 0))[: 1 if sign < 0 else 2]:
        byte = _widened(look_up(call.args[here]))
        if byte is None or byte.ty.ndim != call.ty.ndim:
            continue
        if (shift := _shift(look_up, emit, call.args[other], sign)) is not None:
            return ByteOperand(byte, shift)
    return None


def _of_constant(values: np.ndarray) -> ByteOperand | None:
    """Return a constant as bytes; the shift is 0 where they fit without one."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if high - low > 255:
        return None
    if low >= -128 and high <= 127:
        return ByteOperand(constant_from(values.astype("int8")), None)
    if low >= 0 and high <= 255:
        return ByteOperand(constant_from(values.astype("uint8")), None)
    shift = low + 128
    return ByteOperand(
        constant_from((values - shift).astype("int8")), constant_from(np.array(shift, "int32"))
    )


def _widened(call: relax.Expr) -> relax.Expr | None:
    """Return the tensor of bytes that a call widens to int16."""
    if operator_name(call) != "astype" or dtype_of(call) != "int16":
        return None
    return call.args[0] if dtype_of(call.args[0]) in ("int8", "uint8") else None


def _shift(look_up: LookUp, emit: Emit, zero: relax.Expr, sign: int) -> relax.Expr | None:
    """Return a zero point of int16, constant or of one byte, as a shift."""
    if isinstance(zero, tvm.ir.GenericConst):
        return constant_from(sign * array_of(zero).astype("int32"))
    byte = _widened(look_up(zero))
    if byte is None:
        return None
    wide = emit(relax.op.astype(byte, "int32"))
    return wide if sign > 0 else emit(relax.op.negative(wide))


def sums_of_taps(attrs: Any, weight: np.ndarray, size: Sequence[int] | None) -> np.ndarray:
    """Return, for each pixel of a convolution, the sum of the taps that lie in the image.

    Args:
        attrs: Of `R.nn.conv2d`: padding, strides and dilation.
        weight: [o, i, kh, kw] of integers.
        size: Rows and columns of the image; None where they are symbolic, and nothing is padded.

    Returns:
        An int32 tensor [1, o, y, x]; y = x = 1 where nothing is padded.
    """
    taps = weight.astype("int64").sum(1)
    padding = [int(p) for p in attrs.padding]
    if size is None or not any(padding):
        return taps.sum((1, 2)).astype("int32")[None, :, None, None]
    inside = [
        _taps_inside(
            int(size[axis]), weight.shape[2 + axis], padding[axis], padding[axis + 2],
            int(attrs.strides[axis]), int(attrs.dilation[axis]),
        )
        for axis in (0, 1)
    ]  # fmt: skip
    return np.einsum("okl,yk,xl->oyx", taps, *inside).astype("int32")[None]


def _taps_inside(
    size: int, taps: int, before: int, after: int, stride: int, dilation: int
) -> np.ndarray:
    """Return which taps of each result along an axis read a pixel, as 0 and 1."""
    results = (size + before + after - (taps - 1) * dilation - 1) // stride + 1
    places = np.arange(results)[:, None] * stride + np.arange(taps) * dilation - before
    return ((places >= 0) & (places < size)).astype("int64")
