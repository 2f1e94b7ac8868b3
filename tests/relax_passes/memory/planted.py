"""Buffers with a planted plan: pieces of one rectangle, time by bytes."""

from __future__ import annotations

import random

GRID = 1024  # steps, and capacity, of `hard_tiling`


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


def hard_tiling(seed: int) -> list[tuple[int, int, int]]:
    """Return 130-460 buffers that fit `GRID`, in the style of MiniMalloc's hard instances.

    A square is cut straight, again and again: whichever piece, or rather a large one, anywhere or
    not near its ends, more often along one axis or not. Up to 15 in a hundred pieces are left out.
    """
    choice = random.Random(seed)
    count = choice.randrange(150, 461)
    power = choice.choice((0, 0.5, 1))  # of the area, the chance of a piece to be cut
    margin, across = choice.choice((0, 0, 0.05, 0.2)), choice.choice((0.35, 0.5, 0.5, 0.65))
    tiles = [(0, GRID, 0, GRID)]
    while len(tiles) < count:
        chances = [((t[1] - t[0]) * (t[3] - t[2])) ** power for t in tiles]
        (place,) = choice.choices(range(len(tiles)), chances)
        lower, upper, low, high = tiles.pop(place)
        in_time = choice.random() < across
        first, last = (lower, upper) if in_time else (low, high)
        ends = max(1, int(margin * (last - first)))
        if last - first < 2 * ends:
            tiles.append((lower, upper, low, high))
            continue
        cut = choice.randint(first + ends, last - ends)
        if in_time:
            tiles += [(lower, cut, low, high), (cut, upper, low, high)]
        else:
            tiles += [(lower, upper, low, cut), (lower, upper, cut, high)]
    left_out = choice.uniform(0, 0.15)
    kept = [tile for tile in tiles if choice.random() >= left_out]
    return [(lower, upper, high - low) for lower, upper, low, high in kept]
