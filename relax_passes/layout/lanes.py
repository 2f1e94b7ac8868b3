"""Which blocks the channels of a value may take, by the lanes of a register."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Lanes:
    """What blocks may be.

    Attributes:
        count: The lanes of a register.
        fill_up: Whether the last block may be filled up.
        permutes: Whether one instruction puts the lanes of a register in any order.
    """

    count: int
    fill_up: bool
    permutes: bool = False
    one_block: ClassVar[bool] = False  # whether NHWC is the only layout besides NCHW
    types: ClassVar[frozenset[str]] = frozenset({"float32"})  # of what may leave NCHW
    convolved: ClassVar[frozenset[str]] = frozenset({"float32"})  # of data and kernels

    def choose(self, channels: int) -> int:
        """Return the block that is best for a convolution that writes `channels`."""
        choose = choose_block if self.fill_up else choose_even_block
        return choose(channels, self.count)

    def choose_even(self, channels: int) -> int:
        """Return the best block that divides `channels`."""
        return choose_even_block(channels, self.count)

    def blocks(self, channels: int) -> list[int]:
        """Return the blocks worth a thought, the one of all channels included."""
        found = {block for block in _whole_blocks(self.count) if channels % block == 0}
        found |= {self.choose_even(channels), self.choose(channels)}
        if self.fill_up and channels > self.count:
            found.add(self.count)  # a slice or the end of a concatenation
        if channels % self.count == 0:
            found.add(channels)
        return sorted(found)

    def is_channels_last(self, block: int) -> bool:
        """Return whether a block is longer than a register: only few kernels work on it."""
        return block > self.count

    def registers(self, channels: int, block: int) -> float:
        """Return how many registers the channels of a pixel take."""
        return channels / self.count if self.is_channels_last(block) else _work(channels, block)


def choose_block(channels: int, lanes: int) -> int:
    """Return the block of `channels` whose registers and bytes cost least, the last one filled up.

    Work on blocks takes time by the registers, moving them by the bytes: 1000 channels on 16 lanes
    are 63 blocks of 16, eight of their lanes idle, not 125 of 8; 24 channels are two blocks of 12.
    """
    if channels <= lanes:
        return channels

    def cost(block: int) -> tuple[float, int]:
        stored = channels + fill_up(channels, block)
        return _work(channels, block) + stored / lanes, -block

    return min(_whole_blocks(lanes), key=cost)


def choose_even_block(channels: int, lanes: int) -> int:
    """Return the divisor of `channels` that wastes least of `lanes`, for blocks that end evenly.

    Blocks of whole quarter registers load and store best: 24 channels on 16 lanes are blocks of 12
    (1.3 times as fast as of 8), 60 of 12 rather than 15, 40 of 8 rather than 10.
    """
    if channels % lanes == 0:
        return lanes
    if channels < lanes:
        return channels
    quarter = _quarter(lanes)

    def worth(block: int) -> int:
        return block if block % quarter == 0 else block - quarter // 2 - 1

    even = [d for d in range(2, lanes, 2) if channels % d == 0 and 2 * d >= lanes]
    if even:
        return max(even, key=worth)
    return max(d for d in range(1, lanes) if channels % d == 0)


def fill_up(count: int, block: int) -> int:
    """Return the lanes that `count` channels lack to whole blocks."""
    return -count % block


def _quarter(lanes: int) -> int:
    return max(1, lanes // 4)


def _whole_blocks(lanes: int) -> list[int]:
    """Return the blocks of whole quarters that fill at least half a register."""
    quarter = _quarter(lanes)
    return [block for block in range(quarter, lanes + 1, quarter) if 2 * block >= lanes]


def _work(channels: int, block: int) -> float:
    """Return the registers of work; LLVM loads one that is no power of two in two parts."""
    count = -(-channels // block)
    return count if block & (block - 1) == 0 else 1.15 * count
