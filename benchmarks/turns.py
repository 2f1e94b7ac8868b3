"""Engines that take turns: in every round each is called for a while, so that noise hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

Clock = Callable[[], float]
# On a loaded machine one thread is best timed by the seconds that it ran itself.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.thread_time}
_ROUND_SECONDS = 0.05


def take_turns(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    clock: Clock = time.perf_counter,
    round_seconds: float = _ROUND_SECONDS,
) -> list[list[float]]:
    """Return the seconds a call of each function, one figure a round."""
    repeats = []
    for call in calls:
        call()
        start = clock()
        call()
        repeats.append(max(1, int(round_seconds / max(1e-7, clock() - start))))
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeat, taken in zip(calls, repeats, seconds, strict=True):
            call()  # the threads of the engine before may still spin
            start = clock()
            for _ in range(repeat):
                call()
            taken.append((clock() - start) / repeat)
    return seconds
