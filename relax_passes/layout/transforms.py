"""Emit the transforms between NCHW, NHWC and NCHW[x]c, and count those that move data."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.analysis.definitions import axes_of
from relax_passes.layout.blocked import Blocked, dims_of, is_one
from relax_passes.layout.lanes import fill_up

TO_CHANNELS_LAST, TO_CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
_PERMUTE = tvm.ir.Op.get("relax.permute_dims")


class LayoutTransforms:
    """Emits transforms into a block builder; `count` is how many of them copy a tensor."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self.count = 0

    def block(self, x: relax.Expr, block: int) -> Blocked:
        """Return (N, C, H, W) as a blocked tensor."""
        n, c, h, w = dims_of(x)
        channels, more = int(c), fill_up(int(c), block)
        outer = (channels + more) // block
        if block == 1 or (is_one(h) and is_one(w)):
            full = self._pad(x, 1, more)
            return Blocked(self._reshape(full, [n, outer, h, w, block]), block, channels)
        source = self._channels_last_source(x)
        if source is not None:
            return self.from_channels_last(source, block)
        self.count += 1
        if outer == 1 and more:  # both steps join one kernel, without a view between them
            full = self._pad(self._permute(x, TO_CHANNELS_LAST), 3, more)
            return Blocked(self._reshape(full, [n, 1, h, w, block]), block, channels)
        tiles = self._reshape(self._pad(x, 1, more), [n, outer, block, h, w])
        return Blocked(self._permute(tiles, [0, 1, 3, 4, 2]), block, channels)

    def from_channels_last(self, x: relax.Expr, block: int) -> Blocked:
        """Return (N, H, W, C) as a blocked tensor."""
        n, h, w, c = dims_of(x)
        channels, more = int(c), fill_up(int(c), block)
        if block == channels:
            return Blocked(self._reshape(x, [n, 1, h, w, block]), block, channels)
        self.count += 1
        tiles = self._reshape(self._pad(x, 3, more), [n, h, w, (channels + more) // block, block])
        return Blocked(self._permute(tiles, [0, 3, 1, 2, 4]), block, channels)

    def unblock(self, x: Blocked) -> relax.Expr:
        """Return a blocked tensor as (N, C, H, W)."""
        n, _, h, w, _ = dims_of(x.value)
        flat = [n, x.stored_channels, h, w]
        if x.is_pixel or x.block == 1:
            return self._first(self._reshape(x.value, flat), 1, x.channels)
        self.count += 1
        return self._first(
            self._reshape(self._permute(x.value, [0, 1, 4, 2, 3]), flat), 1, x.channels
        )

    def channels_last(self, x: Blocked) -> relax.Expr:
        """Return a blocked tensor as (N, H, W, C)."""
        n, _, h, w, _ = dims_of(x.value)
        flat = [n, h, w, x.stored_channels]
        if x.block == x.channels:
            return self._reshape(x.value, flat)
        self.count += 1
        return self._first(
            self._reshape(self._permute(x.value, [0, 2, 3, 1, 4]), flat), 3, x.channels
        )

    def reblock(self, x: Blocked, block: int) -> Blocked:
        """Return a blocked tensor with another block size."""
        if x.block == block:
            return x
        n, outer, h, w, _ = dims_of(x.value)
        count = -(-x.channels // block)
        if x.is_pixel and not x.is_filled_up and x.channels % block == 0:
            return Blocked(self._reshape(x.value, [n, count, h, w, block]), block, x.channels)
        if x.block % block == 0:
            self.count += 1
            part = x.block // block
            tiles = self._reshape(x.value, [n, outer, h, w, part, block])
            moved = self._permute(tiles, [0, 1, 4, 2, 3, 5])
            parts = self._reshape(moved, [n, int(outer) * part, h, w, block])
            return Blocked(self._first(parts, 1, count), block, x.channels)
        if block % x.block == 0:
            self.count += 1
            part = block // x.block
            full = self._pad(x.value, 1, count * part - int(outer))
            tiles = self._reshape(full, [n, count, part, h, w, x.block])
            moved = self._permute(tiles, [0, 1, 3, 4, 2, 5])
            return Blocked(self._reshape(moved, [n, count, h, w, block]), block, x.channels)
        return self.block(self.unblock(x), block)

    def shuffle(
        self, x: relax.Expr, phases: tuple[int, int], outer: int, block: int, together: bool
    ) -> relax.Expr:
        """Move the phases of a transposed convolution from the channels of `x` into its pixels.

        Args:
            x: Convolution's result; its channels are (r_y, r_x, outer, block), with all of them
                in the innermost axis if `together`, else `block` of them.
            phases: Number of phases along rows and along columns.
            outer: Blocks of the result.
            block: Block of the result.
            together: See `x`.

        Returns:
            Tensor (N, outer, H * phases[0], W * phases[1], block).
        """
        n, _, h, w, _ = dims_of(x)
        py, px = phases
        if (py, px) == (1, 1) and not together:
            return x
        self.count += 1
        if together:
            tiles = self._reshape(x, [n, h, w, py, px, outer, block])
            axes = [0, 5, 1, 3, 2, 4, 6]
        else:
            tiles = self._reshape(x, [n, py, px, outer, h, w, block])
            axes = [0, 3, 4, 1, 5, 2, 6]
        return self._reshape(self._permute(tiles, axes), [n, outer, h * py, w * px, block])

    def _channels_last_source(self, x: relax.Expr) -> relax.Expr | None:
        """Return the (N, H, W, C) tensor whose transpose `x` is, if it is one."""
        if not isinstance(x, relax.Var):
            return None
        producer = self._builder.lookup_binding(x)
        if not isinstance(producer, tvm.ir.Call) or producer.op != _PERMUTE:
            return None
        return producer.args[0] if axes_of(producer) == TO_CHANNELS_FIRST else None

    def _pad(self, x: relax.Expr, axis: int, more: int) -> relax.Expr:
        """Return `x` with `more` zeros at the end of an axis."""
        if not more:
            return x
        widths = [0] * (2 * len(dims_of(x)))
        widths[2 * axis + 1] = more
        return self._builder.emit(relax.op.nn.pad(x, widths))

    def _first(self, x: relax.Expr, axis: int, count: int) -> relax.Expr:
        """Return the first elements along an axis: what fills up the last block is cut off."""
        if int(dims_of(x)[axis]) == count:
            return x
        return self._builder.emit(relax.op.strided_slice(x, [axis], [0], [count]))

    def _reshape(self, x: relax.Expr, shape: list[tvm.tirx.Expr | int]) -> relax.Expr:
        return self._builder.emit(relax.op.reshape(x, shape))

    def _permute(self, x: relax.Expr, axes: list[int]) -> relax.Expr:
        return self._builder.emit(relax.op.permute_dims(x, axes))
