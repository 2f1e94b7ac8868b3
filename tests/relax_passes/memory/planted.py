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
