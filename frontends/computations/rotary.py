"""Rotary position embedding as one tensor expression."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.gather import within


def rotate(
    x: te.Tensor,
    cosine: te.Tensor,
    sine: te.Tensor,
    positions: te.Tensor | None,
    *,
    head_size: int,
    rotary_size: int,
    interleaved: bool,
) -> te.Tensor:
    """Rotate pairs of elements of each head by angles that depend on the position.

    Args:
        x: (batch, length, heads * head size) or (batch, heads, length, head size).
        cosine: Of the angles: (positions, rotary_size / 2), or (batch, length, rotary_size / 2)
            where `positions` is None.
        sine: The same for the sine.
        positions: (batch, length), or (1,): the first one's position, which others follow.
        head_size: Elements of a head.
        rotary_size: The first elements of a head, which are rotated; the rest is kept.
        interleaved: Whether neighbours are a pair, else element d and d + rotary_size / 2.

    Returns:
        A tensor shaped as x. float16 and bfloat16 are rotated in float32.
    """
    dtype = str(x.dtype)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    half = rotary_size // 2

    def element(*place: Any) -> Any:
        batch, length = place[0], place[1] if len(place) == 3 else place[2]
        d = tirx.floormod(place[-1], head_size) if len(place) == 3 else place[-1]
        if interleaved:
            pair, first = tirx.floormod(tirx.floordiv(d, 2), half), tirx.floormod(d, 2) == 0
            step = tirx.Select(first, _int(1, d), _int(-1, d))
        else:
            pair, first = tirx.floormod(d, half), d < half
            step = tirx.Select(first, _int(half, d), _int(-half, d))
        if positions is None:
            row: tuple[Any, ...] = (batch, length)
        elif len(positions.shape) == 1:
            row = (within(positions(0).astype("int64") + length, cosine.shape[0]),)
        else:
            row = (within(positions(batch, length), cosine.shape[0]),)
        c, s = cosine(*row, pair).astype(wide), sine(*row, pair).astype(wide)
        here = x(*place)
        other = x(*place[:-1], place[-1] + step).astype(wide)
        turned = here.astype(wide) * c + tirx.Select(first, -other, other) * s
        if rotary_size == head_size:
            return turned.astype(dtype)
        return tirx.if_then_else(d < rotary_size, turned.astype(dtype), here)

    return te.compute(x.shape, element, name="rotate")


def _int(value: int, like: Any) -> Any:
    return tirx.const(value, str(like.ty))
