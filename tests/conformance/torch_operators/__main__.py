"""Run torch's samples: `python -m tests.conformance.torch_operators [--filter REGEX] [--update]`.

Exit code 1 if a sample is worse than `not_passing.json` says, or fails in another way.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.conformance.known import changes
from tests.conformance.run_case import Outcome
from tests.conformance.torch_operators.core_set import op_infos, uncovered
from tests.conformance.torch_operators.known import read_known, unexpected, write_known
from tests.conformance.torch_operators.run_samples import Job, run_samples
from tests.worker_pool import Died, WorkerPool

DTYPES = ("float32", "float64", "int64", "bool")
VERDICTS = ("pass", "wrong", "error", "unsupported")


def jobs(pattern: str, dtypes: Sequence[str], every: int, most: int) -> list[Job]:
    """Return one job for each chosen operator and each of the dtypes that eager runs it in."""
    import torch

    return [
        Job(key, dtype, every, most)
        for key, info in op_infos().items()
        if re.search(pattern, key)
        for dtype in dtypes
        if info.supports_dtype(getattr(torch, dtype), "cpu")
    ]


def run_jobs(
    chosen: Sequence[Job], workers: int, seconds: float, console: Console | None = None
) -> dict[str, Outcome]:
    """Run jobs in worker processes; return each sample's outcome by "operator/dtype/number"."""
    outcomes: dict[str, Outcome] = {}
    with WorkerPool(run_samples, min(workers, len(chosen)), most_jobs=60) as pool:
        for job, answer in pool.run_all(chosen, lambda job: seconds):
            found = {0: Outcome("error", answer.reason)} if isinstance(answer, Died) else answer
            for number, outcome in found.items():
                outcomes[f"{job.name}/{number}"] = outcome
                if console is not None and outcome.verdict != "pass":
                    line = f"{outcome.verdict:12}{job.name}/{number}: {outcome.reason}"
                    console.print(escape(line), soft_wrap=True)
    return dict(sorted(outcomes.items()))


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run, print, compare with the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filter", default="", help="regular expression on the operator")
    parser.add_argument("--dtype", action="append", choices=(*DTYPES, "float16", "bfloat16"))
    parser.add_argument("--every", type=int, default=1, help="run each n-th sample only")
    parser.add_argument("--most", type=int, default=60, help="samples of one operator and dtype")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=600.0, help="time-out of one operator")
    parser.add_argument("--update", action="store_true", help="rewrite the list of failures")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    chosen = jobs(options.filter, options.dtype or DTYPES, options.every, options.most)
    outcomes = run_jobs(chosen, options.workers, options.seconds, console)
    console.print(table(outcomes))
    console.print(f"core operators without samples: {', '.join(uncovered())}", soft_wrap=True)
    worse = [
        change for change in changes(unexpected(outcomes), read_known()) if change.is_regression
    ]
    for change in worse:
        line = f"regression {change.key}: {change.before} -> {change.after.verdict}"
        console.print(escape(line), soft_wrap=True)
    if options.update:
        write_known(outcomes)
        return 0
    return 1 if worse else 0


def table(outcomes: Mapping[str, Outcome]) -> Table:
    """Return the counts of operators that have a sample that does not pass, and the sums."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for key, outcome in outcomes.items():
        counts[key.split("/")[0]][outcome.verdict] += 1
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    drawn = Table()
    drawn.add_column("operator")
    for column in (*VERDICTS, "all"):
        drawn.add_column(column, justify="right")
    failing = {name: c for name, c in counts.items() if c["pass"] < c.total()}
    for name, counter in [*sorted(failing.items()), (f"all {len(counts)} operators", total)]:
        drawn.add_row(name, *(str(counter[v]) for v in VERDICTS), str(counter.total()))
    return drawn


if __name__ == "__main__":
    sys.exit(main())
