"""Unpack matrices whose elements are 2, 4 or 8 bits wide, with a scale for each block of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx


def unpack(packed: te.Tensor, outer: Sequence[Any], place: Any, bits: int) -> Any:
    """Return element `place` along the last axis, as int32; low bits of a byte come first.

    Args:
        packed: uint8 bytes, 8 / bits elements each along the last axis.
        outer: The indices of the other axes.
        place: The element's index.
        bits: 2, 4 or 8.
    """
    per_byte = 8 // bits
    byte = packed(*outer, tirx.floordiv(place, per_byte)).astype("int32")
    if per_byte == 1:
        return byte
    shift = (tirx.floormod(place, per_byte) * bits).astype("int32")
    return (byte >> shift) & tirx.const(2**bits - 1, "int32")


def dequantize_columns(
    packed: te.Tensor,
    scales: te.Tensor,
    zeros: te.Tensor | None,
    groups: te.Tensor | None = None,
    *,
    bits: int,
    block: int,
    depth: int,
) -> te.Tensor:
    """Return the float matrix [depth, N] that a packed matrix stores column by column.

    Args:
        packed: uint8[N, blocks, block * bits / 8].
        scales: float[N, blocks]; the result has its dtype.
        zeros: Zero points: packed uint8[N, ceil(blocks * bits / 8)], or floats [N, blocks]; None
            for the middle of the range, 2^(bits - 1).
        groups: int[depth], whose scale and zero point each row of the matrix has; None for those
            of its block.
        bits: 2, 4 or 8.
        block: How many elements of a column share a scale.
        depth: Elements of a column; the last block may be incomplete.
    """
    dtype = str(scales.dtype)

    def element(k: Any, n: Any) -> Any:
        group, inside = tirx.floordiv(k, block), tirx.floormod(k, block)
        value = unpack(packed, [n, group], inside, bits)
        if groups is not None:
            group = groups(k).astype("int64")
        scale = scales(n, group).astype("float32")
        if zeros is None:
            centered = (value - 2 ** (bits - 1)).astype("float32")
        elif str(zeros.dtype) == "uint8":
            centered = (value - unpack(zeros, [n], group, bits)).astype("float32")
        else:
            centered = value.astype("float32") - zeros(n, group).astype("float32")
        return (centered * scale).astype(dtype)

    return te.compute((depth, packed.shape[0]), element, name="unpack_weight")
