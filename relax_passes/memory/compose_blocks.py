"""Compose buffers into rectangular blocks without a hole, so that fewer things are left to place.

Two blocks that live over the same steps stack into one; of two that take the same bytes and where
the second starts as the first ends, the second takes the first one's place, in a row. A block is
as full as its buffers, so composing changes no step's load, and offsets of blocks are offsets of
their buffers. A plan without slack that straight cuts take apart is put together again like this,
from its smallest pieces (Fanslau and Bortfeldt, "A Tree Search Algorithm for Solving the Container
Loading Problem", INFORMS Journal on Computing 22, 2010, place such blocks; so do we). Which of
several equal partners belongs to a block is a guess: try several orders.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

# What goes first: stacks where they are preferred, rows, and where rows are preferred stacks that
# match a block beside them, then any stack.
_STACK_FIRST, _ROW, _STACK, _LAST_RESORT = range(4)
_PAIRS_AMONG = 16  # blocks, to bound the time
_DISTURBANCE = 0.5  # of the length of a block, in orders after the first ones


@dataclass(frozen=True)
class Block:
    """A filled rectangle: the steps [lower, upper) by `size` bytes.

    `parts` are its blocks, each with its offset in this one; a block of one buffer has that
    buffer's number and no parts.
    """

    lower: int
    upper: int
    size: int
    buffer: int = -1
    parts: tuple[tuple[Block, int], ...] = ()


def compose_blocks(buffers: Sequence[tuple[int, int, int]], order: int = 0) -> list[Block]:
    """Compose until no two blocks fit together; blocks that live shortly go first.

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes.
        order: Even numbers prefer rows, odd ones stacks. From 2 on, lengths and partners are
            disturbed at random, by the number. Equal arguments give equal blocks.
    """
    bench = _Bench(rows_first=order % 2 == 0, choice=random.Random(order) if order > 1 else None)
    for number, (lower, upper, size) in enumerate(buffers):
        bench.add(Block(lower, upper, size, number))
    bench.compose()
    return list(bench.blocks.values())


def offsets_of_buffers(blocks: Sequence[Block], offsets: Sequence[int]) -> dict[int, int]:
    """Return the offset of each buffer, by its number, in `blocks` at `offsets`."""
    result: dict[int, int] = {}
    waiting = list(zip(blocks, offsets, strict=True))
    while waiting:  # no recursion: a stack of many buffers is as deep
        block, offset = waiting.pop()
        if block.parts:
            waiting += [(part, offset + inner) for part, inner in block.parts]
        else:
            result[block.buffer] = offset
    return result


@dataclass
class _Bench:
    """Blocks to compose, found by what a partner must share; ordered sets, so runs are equal."""

    rows_first: bool
    choice: random.Random | None
    blocks: dict[int, Block] = field(default_factory=dict)
    over: dict[tuple[int, int], dict[int, None]] = field(default_factory=lambda: defaultdict(dict))
    starting: dict[tuple[int, int], dict[int, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    ending: dict[tuple[int, int], dict[int, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    queue: list[tuple[int, float, tuple[int, int]]] = field(default_factory=list)
    added: int = 0

    def add(self, block: Block) -> None:
        """Take a block in, and note where it may find a partner."""
        number, self.added = self.added, self.added + 1
        self.blocks[number] = block
        span = (block.lower, block.upper)
        first, last = (block.lower, block.size), (block.upper, block.size)
        self.over[span][number] = None
        self.starting[first][number] = None
        self.ending[last][number] = None
        self._note_stack(span)
        self._note_row(first)
        self._note_row(last)

    def compose(self) -> None:
        """Put blocks together until no two fit."""
        while self.queue:
            rank, _, place = heapq.heappop(self.queue)
            if rank == _ROW:
                self._row(place)
            else:
                self._stack(place, is_last_resort=rank != _STACK)

    def _stack(self, span: tuple[int, int], is_last_resort: bool) -> None:
        if len(self.over[span]) < 2:
            return
        matching = self._matching_stack(span)
        if matching is None and not is_last_resort:
            self._note(_LAST_RESORT, span[1] - span[0], span)
            return
        parts, size = [], 0
        for number in matching or self._some(span)[:2]:
            block = self._take(number)
            parts.append((block, size))
            size += block.size
        self.add(Block(*span, size, parts=tuple(parts)))

    def _matching_stack(self, span: tuple[int, int]) -> list[int] | None:
        """Return two blocks over `span`, or all, that make a row with a block beside them."""
        numbers = self._some(span)
        pairs = combinations(numbers[:_PAIRS_AMONG], 2)
        for stack in chain([numbers], map(list, pairs)):
            size = sum(self.blocks[number].size for number in stack)
            if self.ending.get((span[0], size)) or self.starting.get((span[1], size)):
                return stack
        return None

    def _some(self, span: tuple[int, int]) -> list[int]:
        """Return the blocks over `span`, those to stack first in front."""
        numbers = list(self.over[span])
        if self.choice is not None:
            self.choice.shuffle(numbers)
        return numbers

    def _row(self, place: tuple[int, int]) -> None:
        if self.starting[place] and self.ending[place]:
            before, after = (self._take(number) for number in self._shortest(place))
            parts = ((before, 0), (after, 0))
            self.add(Block(before.lower, after.upper, before.size, parts=parts))
            self._note_row(place)

    def _take(self, number: int) -> Block:
        block = self.blocks.pop(number)
        del self.over[block.lower, block.upper][number]
        del self.starting[block.lower, block.size][number]
        del self.ending[block.upper, block.size][number]
        return block

    def _shortest(self, place: tuple[int, int]) -> tuple[int, int]:
        """Return the shortest block that ends at `place`, and the shortest that starts there."""

        def length(number: int) -> int:
            return self.blocks[number].upper - self.blocks[number].lower

        return min(self.ending[place], key=length), min(self.starting[place], key=length)

    def _note_stack(self, span: tuple[int, int]) -> None:
        if len(self.over[span]) > 1:
            self._note(_STACK if self.rows_first else _STACK_FIRST, span[1] - span[0], span)

    def _note_row(self, place: tuple[int, int]) -> None:
        """`place` is a step at which one block ends and another starts, and the bytes of both."""
        if self.starting[place] and self.ending[place]:
            before, after = (self.blocks[number] for number in self._shortest(place))
            self._note(_ROW, after.upper - before.lower, place)

    def _note(self, rank: int, length: float, place: tuple[int, int]) -> None:
        if self.choice is not None:
            length *= 1 + _DISTURBANCE * self.choice.random()
        heapq.heappush(self.queue, (rank, length, place))
