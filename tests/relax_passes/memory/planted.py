"""Buffers with a planted plan: pieces of one rectangle, time by bytes."""

from __future__ import annotations

import random


def tiling(seed: int, count: int, steps: int, capacity: int) -> list[tuple[int, int, int]]:
    """Cut a `steps` x `capacity` rectangle into `count` buffers, which therefore fit it exactly."""
    choice = random.Random(seed)
    tiles = [(0, steps, 0, capacity)]
    while len(tiles) < count:
        lower, upper, low, high = tiles.pop(choice.randrange(len(tiles)))
        if choice.random() < 0.5 and upper - lower > 1:
            cut = choice.randrange(lower + 1, upper)
            tiles += [(lower, cut, low, high), (cut, upper, low, high)]
        elif high - low > 1:
            cut = choice.randrange(low + 1, high)
            tiles += [(lower, upper, low, cut), (lower, upper, cut, high)]
        else:
            tiles.append((lower, upper, low, high))
    return [(lower, upper, high - low) for lower, upper, low, high in tiles]


def random_tiling(seed: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return 50-500 buffers of a random tiling, every other time with a tenth left out, and the
    capacity they fit."""
    choice = random.Random(seed)
    count = choice.randrange(50, 501)
    steps = choice.choice((count // 4, count, 2 * count))
    capacity = 1 << choice.randrange(10, 24)
    buffers = tiling(seed, count, steps, capacity)
    if choice.random() < 0.5:
        buffers = [buffer for buffer in buffers if choice.random() > 0.1]
    return buffers, capacity
