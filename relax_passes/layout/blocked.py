"""The layout NCHW[x]c: channels in blocks of x, the block innermost.

A tensor (N, C, H, W) is stored as (N, C/x, H, W, x), so that one vector register holds x
neighbouring channels of one pixel. Georganas et al.: Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures, SC 2018. The last block may be filled up: lanes past the last
channel hold finite numbers that nothing reads but kernels whose weights are zero there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relax_passes.layout.lanes import fill_up


@dataclass(frozen=True)
class Blocked:
    """A tensor (N, C, H, W) held as `value` of shape (N, ceil(C/block), H, W, block)."""

    value: relax.Expr
    block: int
    channels: int

    @property
    def stored_channels(self) -> int:
        """Return C and the lanes that fill up the last block."""
        return int(self.value.ty.shape.values[1]) * self.block

    @property
    def is_filled_up(self) -> bool:
        """Return whether the last block holds lanes that are no channels."""
        return self.stored_channels > self.channels

    @property
    def is_pixel(self) -> bool:
        """Return whether H = W = 1, so that both layouts hold the same bytes."""
        return all(is_one(d) for d in self.value.ty.shape.values[2:4])


def is_one(dim: tvm.tirx.Expr) -> bool:
    """Return whether a dimension is the constant 1."""
    return isinstance(dim, tvm.tirx.IntImm) and int(dim) == 1


def pack_kernel(weight: np.ndarray, in_block: int, out_block: int) -> np.ndarray:
    """Return an OIHW kernel in the layout OIHW[in_block]i[out_block]o, zero past its channels.

    It is a view where the blocks are full.
    """
    o, i, kh, kw = weight.shape
    more = fill_up(o, out_block), fill_up(i, in_block)
    if any(more):
        weight = np.pad(weight, [(0, more[0]), (0, more[1]), (0, 0), (0, 0)])
        o, i = o + more[0], i + more[1]
    tiles = weight.reshape(o // out_block, out_block, i // in_block, in_block, kh, kw)
    return tiles.transpose(0, 2, 4, 5, 3, 1)


def pack_constant(value: np.ndarray, block: int, fill: float = 0) -> np.ndarray:
    """Return an array that broadcasts against (N, C, H, W) as one for blocked tensors.

    It is a view where the blocks are full; other lanes hold `fill`.
    """
    shape = (1,) * (4 - value.ndim) + value.shape
    n, c, h, w = shape
    if c == 1:
        return value.reshape(n, 1, h, w, 1)
    value, more = value.reshape(shape), fill_up(c, block)
    if more:
        value = np.pad(value, [(0, 0), (0, more), (0, 0), (0, 0)], constant_values=fill)
    tiles = value.reshape(n, (c + more) // block, block, h, w)
    return tiles.transpose(0, 1, 3, 4, 2)


def dims_of(value: relax.Expr) -> list[tvm.tirx.Expr]:
    """Return the dimensions of a tensor."""
    return list(value.ty.shape.values)


def has_channels(value: relax.Expr) -> bool:
    """Return whether `value` is (N, C, H, W) of known rank with a static C."""
    shape = getattr(value.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or len(shape.values) != 4:
        return False
    return isinstance(shape.values[1], tvm.tirx.IntImm)
