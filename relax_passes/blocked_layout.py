"""The layout NCHW[x]c: channels in blocks of x, the block innermost.

A tensor (N, C, H, W) is stored as (N, C/x, H, W, x), so that one vector register holds x
neighbouring channels of one pixel. Georganas et al.: Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures, SC 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax


@dataclass(frozen=True)
class Blocked:
    """A tensor (N, C, H, W) held as `value` of shape (N, C/block, H, W, block)."""

    value: relax.Expr
    block: int

    @property
    def channels(self) -> int:
        """Return C."""
        return int(self.value.ty.shape.values[1]) * self.block

    @property
    def is_pixel(self) -> bool:
        """Return whether H = W = 1, so that both layouts hold the same bytes."""
        return all(is_one(d) for d in self.value.ty.shape.values[2:4])


def is_one(dim: tvm.tirx.Expr) -> bool:
    """Return whether a dimension is the constant 1."""
    return isinstance(dim, tvm.tirx.IntImm) and int(dim) == 1


def choose_block(channels: int, lanes: int) -> int:
    """Return the block of `channels`: `lanes` where that divides, else what wastes least of them.

    Blocks of whole quarter registers load and store best: 24 channels on 16 lanes are blocks of 12
    (1.3 times as fast as of 8), 60 of 12 rather than 15, 40 of 8 rather than 10.
    """
    if channels % lanes == 0:
        return lanes
    if channels < lanes:
        return channels
    quarter = max(1, lanes // 4)

    def worth(block: int) -> int:
        return block if block % quarter == 0 else block - quarter // 2 - 1

    even = [d for d in range(2, lanes, 2) if channels % d == 0 and 2 * d >= lanes]
    if even:
        return max(even, key=worth)
    return max(d for d in range(1, lanes) if channels % d == 0)


def pack_kernel(weight: np.ndarray, in_block: int, out_block: int) -> np.ndarray:
    """Return an OIHW kernel as a view in the layout OIHW[in_block]i[out_block]o."""
    o, i, kh, kw = weight.shape
    tiles = weight.reshape(o // out_block, out_block, i // in_block, in_block, kh, kw)
    return tiles.transpose(0, 2, 4, 5, 3, 1)


def pack_constant(value: np.ndarray, block: int) -> np.ndarray:
    """Return an array that broadcasts against (N, C, H, W) as a view for blocked tensors."""
    shape = (1,) * (4 - value.ndim) + value.shape
    n, c, h, w = shape
    if c == 1:
        return value.reshape(n, 1, h, w, 1)
    tiles = value.reshape(n, c // block, block, h, w)
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
