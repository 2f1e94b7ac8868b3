"""Random graphs through the compiler: `python -m tests.fuzz.graphs [passes|onnx|memory ...]`.

Graph `i` of a mode and a seed is the same whenever it is drawn, so `--first` goes on where a run
stopped, and `--first i --count 1` repeats one graph. A graph that fails is made smaller and printed
as TVMScript or ONNX text. `all` runs 2,000 graphs in mode passes, 1,000 in onnx, 10,000 in memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.fuzz.graphs.run_case import GOOD, MODES, Job, Outcome, run_case
from tests.fuzz.graphs.shrink import shrink
from tests.fuzz.graphs.variants import Variant
from tests.worker_pool import Died, WorkerPool

COUNTS = {"passes": 2000, "onnx": 1000, "memory": 10_000}
_LARGEST = {"passes": (25, 10), "onnx": (25, 10), "memory": (12, 12)}
_LARGE_SHARE = 5  # every fifth graph may be large, the others cost less
_TIMES_THE_FIRST, _LEAST_SECONDS = 5, 20.0
_JOBS_OF_A_PROCESS = 1500  # compiled kernels stay in memory, 1.5 MB a graph


def main(arguments: list[str] | None = None) -> int:
    """Run the graphs; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.graphs", description=__doc__)
    parser.add_argument("modes", nargs="*", default=["all"], help=f"all, or of {MODES}")
    parser.add_argument("--count", type=int, help="how many graphs of each mode")
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--seed", default="0", help="another seed draws other graphs")
    parser.add_argument("--largest", type=int, help="the most operators of a graph")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of a graph")
    parser.add_argument("--trials", type=int, default=150, help="to make a failing graph smaller")
    options = parser.parse_args(arguments)
    modes = MODES if "all" in options.modes else options.modes
    jobs = [
        Job(mode, options.seed, number, options.largest or largest_of(mode, number))
        for mode in modes
        for number in range(options.first, options.first + (options.count or COUNTS[mode]))
    ]
    ends = Run(options.workers, options.seconds, options.trials).run(jobs)
    print(", ".join(f"{word} {count}" for word, count in sorted(ends.items())))
    return 0 if set(ends) <= {GOOD} else 1


def largest_of(mode: str, number: int) -> int:
    """Return the most operators of graph `number`."""
    return _LARGEST[mode][number % _LARGE_SHARE != 0]


class Run:
    """Runs jobs in worker processes, prints progress and what failed."""

    def __init__(self, workers: int, seconds: float, trials: int) -> None:
        self._workers, self._seconds, self._trials = workers, seconds, trials

    def run(self, jobs: list[Job]) -> Counter[str]:
        """Return how many jobs ended in each way."""
        ends: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        start = time.monotonic()
        with WorkerPool(run_case, self._workers, most_jobs=_JOBS_OF_A_PROCESS) as pool:
            for job, answer in pool.run_all(jobs, lambda job: self._seconds):
                outcome = outcome_of(answer)
                ends[outcome.word] += 1
                done = ends.total()
                if outcome.word != GOOD:
                    seen[outcome.kind()] += 1
                    # The third graph with one fault need not be made smaller.
                    trials = self._trials if seen[outcome.kind()] <= 2 else 0
                    print(self._report(pool, job, outcome, trials), flush=True)
                if done % 25 == 0 or done == len(jobs):
                    rate = done / (time.monotonic() - start)
                    line = f"{done}/{len(jobs)} graphs, {rate:.1f} a second, {dict(ends)}"
                    end = "\r" if sys.stderr.isatty() else "\n"
                    print(line, end=end, file=sys.stderr, flush=True)
        return ends

    def _report(self, pool: WorkerPool, job: Job, outcome: Outcome, trials: int) -> str:
        """Return the failure with the seed and the smallest graph that fails alike."""
        command = (
            f"python -m tests.fuzz.graphs {job.mode} --seed {job.seed} --first {job.number} "
            f"--count 1 --largest {job.largest}"
        )
        lines = [f"{outcome.word}: {command}", *outcome.detail.strip().splitlines()]
        if trials and outcome.word != "invalid":
            small, last = self.smallest(pool, job, outcome, trials)
            lines += [f"smallest that fails alike, {small.variant}:"]
            lines += [*last.detail.strip().splitlines()[-1:], *text_of(small).splitlines()]
        return "\n    ".join(lines)

    def smallest(
        self, pool: WorkerPool, job: Job, outcome: Outcome, trials: int
    ) -> tuple[Job, Outcome]:
        """Return the job with the smallest graph and pipeline found that fail alike.

        A candidate has as long as the first run of the graph again, several times over; where the
        fault is that none ends, a tenth of the limit, which most good graphs need no part of.
        """
        last, limit = outcome, self._seconds / 10 if outcome.hangs else self._seconds

        def fails(candidate: Job) -> bool:
            nonlocal last
            found = outcome_of(pool.run(candidate, limit))
            if found.kind() == outcome.kind():
                last = found
                return True
            return False

        start = time.monotonic()
        if fails(replace(job, variant=Variant())):
            job = replace(job, variant=Variant())
        if not outcome.hangs:
            again = time.monotonic() - start
            limit = min(self._seconds, max(_LEAST_SECONDS, _TIMES_THE_FIRST * again))
        recipe = shrink(job.graph(), lambda r: fails(replace(job, recipe=r)), trials)
        return replace(job, recipe=recipe), last


def outcome_of(answer: Outcome | Died) -> Outcome:
    """Return what became of a job, that of a process which died included."""
    return Outcome("died", answer.reason) if isinstance(answer, Died) else answer


def text_of(job: Job) -> str:
    """Return the graph of a job as TVMScript or ONNX text, and how it is returned."""
    if job.mode == "onnx":
        import onnx

        from tests.fuzz.graphs.emit_onnx import emit_onnx

        return str(onnx.printer.to_text(emit_onnx(job.graph())))
    from tests.fuzz.graphs.emit_relax import emit_relax

    return str(emit_relax(job.graph()).script())


if __name__ == "__main__":
    sys.exit(main())
