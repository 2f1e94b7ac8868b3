"""One tuning run: how long it may take, how it measures, and when a measurement counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tvm.target import Target
from tvm.tirx import PrimFunc

from relax_passes.tuning.answer_store import AnswerStore
from relax_passes.tuning.measure_kernels import measure_kernels
from tir_schedules.questions import Question

# Seconds that tuning may take of a compilation; the last measurement may run over.
QUICK_SECONDS = 30.0
# A winner takes this share less than the cost model's choice, twice: less is noise.
MARGIN = 0.05

Measure = Callable[[Sequence[PrimFunc], Target], list[list[float]]]


@dataclass
class TuningSession:
    """What a compilation's tuning shares: the store, the time left, and the tally.

    Attributes:
        store: Answers of earlier runs; takes new ones.
        seconds: What measurements may take in all.
        measure: Returns the seconds of each kernel in interleaved rounds.
        clock: Seconds of a monotonic clock.
    """

    store: AnswerStore
    seconds: float = QUICK_SECONDS
    measure: Measure = measure_kernels
    clock: Callable[[], float] = time.monotonic
    measured: int = 0
    from_store: int = 0
    left_out: int = 0
    changed: list[dict[str, Any]] = field(default_factory=list)
    _before: float = 0.0  # seconds of the earlier runs of the pass
    _since: float | None = None

    @property
    def spent(self) -> float:
        """Seconds that tuning has taken so far."""
        running = 0.0 if self._since is None else self.clock() - self._since
        return self._before + running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time within."""
        self._since = self.clock()
        try:
            yield
        finally:
            self._before, self._since = self.spent, None

    def answer(
        self,
        question: Question,
        options: Sequence[Any],
        build: Callable[[Any], PrimFunc],
        target: Target,
        calls: int,
    ) -> Any:
        """Return the stored or measured answer; the cost model's where time is up.

        Args:
            question: What is asked.
            options: Its answers, the cost model's first.
            build: Returns the scheduled kernel under an answer.
            target: What kernels are compiled for.
            calls: How often a run of the model calls the kernel.
        """
        stored = self.store.find(question, options)
        if stored:
            self.from_store += 1
            return stored[0]
        if self.spent >= self.seconds:
            self.left_out += 1
            return options[0]
        kernels = [build(option) for option in options]
        best, saved = self._fastest(kernels, target)
        self.measured += 1
        self.store.add(question, options[best])
        if best:
            self.changed.append(
                {
                    "question": repr(question),
                    "default": repr(options[0]),
                    "answer": repr(options[best]),
                    "saved_seconds": calls * saved,
                }
            )
        return options[best]

    def _fastest(self, kernels: Sequence[PrimFunc], target: Target) -> tuple[int, float]:
        """Return which kernel is faster than the first beyond doubt, and by how many seconds.

        The fastest of several is partly the luckiest, so it must win again against the first alone.
        """
        shares, _ = _compared(self.measure(kernels, target))
        best = min(range(len(kernels)), key=shares.__getitem__)
        if best == 0 or shares[best] > 1 - MARGIN:
            return 0, 0.0
        (_, share), saved = _compared(self.measure([kernels[0], kernels[best]], target))
        return (best, saved) if share <= 1 - MARGIN else (0, 0.0)


def _compared(samples: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """Return each kernel's share of the first's time, and the seconds that the last one saves.

    Both are medians over rounds: what disturbs a round disturbs both kernels.
    """
    first = samples[0]
    shares = [
        statistics.median(s / f for s, f in zip(kernel, first, strict=True)) for kernel in samples
    ]
    return shares, statistics.median(first) - statistics.median(samples[-1])
