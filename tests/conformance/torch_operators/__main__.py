"""Run torch's samples: `python -m tests.conformance.torch_operators [--filter REGEX] [--update]`.

Exit code 1 if a sample is worse than `not_passing.json` says, or fails in another way.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.conformance.known import changes
from tests.conformance.run_case import Outcome
from tests.conformance.torch_operators.core_set import op_infos, uncovered
from tests.conformance.torch_operators.known import read_known, write_known
from tests.conformance.torch_operators.run_samples import MOST, Job, run_samples
from tests.worker_pool import Died, WorkerPool

DTYPES = ("float32", "float64", "int64", "bool", "float16", "bfloat16")
VERDICTS = ("pass", "wrong", "error", "unsupported")


def jobs(pattern: str, dtypes: Sequence[str], most: int, engine: str = "relaxc") -> list[Job]:
    """Return one job for each chosen operator, in those of the dtypes that eager runs it in."""
    import torch

    found = []
    for key, info in op_infos().items():
        able = tuple(d for d in dtypes if info.supports_dtype(getattr(torch, d), "cpu"))
        if re.search(pattern, key) and able:
            found.append(Job(key, able, most, engine))
    return found


def run_jobs(
    chosen: Sequence[Job],
    workers: int,
    seconds: float,
    on_done: Callable[[Job, Mapping[str, Outcome]], None] = lambda job, found: None,
) -> dict[str, Outcome]:
    """Run jobs in worker processes; return each sample's outcome by "operator/dtype/number".

    A job that takes its process along is run again sample by sample.
    """
    outcomes: dict[str, Outcome] = {}
    with WorkerPool(run_samples, min(workers, len(chosen)), most_jobs=60) as pool:
        todo = list(chosen)
        while todo:
            again: list[Job] = []
            for job, answer in pool.run_all(todo, lambda job: seconds):
                found = answer
                if isinstance(answer, Died):
                    if not job.only:
                        again += job.alone()
                        continue
                    found = {job.only: Outcome("error", answer.reason)}
                named = {f"{job.key}/{name}": outcome for name, outcome in found.items()}
                outcomes.update(named)
                on_done(job, named)
            todo = again
    return dict(sorted(outcomes.items()))


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run, print, compare with the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filter", default="", help="regular expression on the operator")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--most", type=int, default=MOST, help="samples of one operator and dtype")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1200.0, help="time-out of one operator")
    parser.add_argument("--against-tvm", type=int, default=0, help="so many by stock TVM, too")
    parser.add_argument("--resume", type=Path, help="file of outcomes: those in it are not rerun")
    parser.add_argument("--update", action="store_true", help="rewrite the list of failures")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    chosen = jobs(options.filter, options.dtype or DTYPES, options.most)
    outcomes = _run(chosen, options, console)
    console.print(table(outcomes))
    console.print(f"core operators without samples: {', '.join(uncovered())}", soft_wrap=True)
    if options.against_tvm:
        stock = jobs(options.filter, options.dtype or DTYPES, options.against_tvm, "tvm")
        _compare(outcomes, _run(stock, options, console), console)
    worse = [change for change in changes(outcomes, read_known()) if change.is_regression]
    for change in worse:
        line = f"regression {change.key}: {change.before} -> {change.after.verdict}"
        console.print(escape(line), soft_wrap=True)
    if options.update:
        write_known(outcomes)
        return 0
    return 1 if worse else 0


def _run(
    chosen: Sequence[Job], options: argparse.Namespace, console: Console
) -> dict[str, Outcome]:
    """Run what the file of outcomes does not have yet, and add it there."""
    engine = chosen[0].engine if chosen else "relaxc"
    path = options.resume and options.resume.with_suffix(f".{engine}.jsonl")
    outcomes = dict(_read(path)) if path and path.exists() else {}
    done = {key.rsplit("/", 2)[0] for key in outcomes}

    def show(job: Job, found: Mapping[str, Outcome]) -> None:
        if path:
            with path.open("a") as file:
                rows = ([key, o.verdict, o.reason] for key, o in found.items())
                file.writelines(json.dumps(row) + "\n" for row in rows)
        for key, outcome in found.items():
            if outcome.verdict != "pass" and engine == "relaxc":
                line = f"{outcome.verdict:12}{key}: {outcome.reason}"
                console.print(escape(line), soft_wrap=True)

    rest = [job for job in chosen if job.key not in done]
    outcomes.update(run_jobs(rest, options.workers, options.seconds, show) if rest else {})
    return outcomes


def _read(path: Path) -> Iterable[tuple[str, Outcome]]:
    for line in path.read_text().splitlines():
        key, verdict, reason = json.loads(line)
        yield key, Outcome(verdict, reason)


def _compare(ours: Mapping[str, Outcome], stock: Mapping[str, Outcome], console: Console) -> None:
    """Print what becomes of the samples that both ran."""
    shared = [key for key in stock if key in ours]
    for name, outcomes in (("relaxc", ours), ("stock TVM", stock)):
        counts = collections.Counter(outcomes[key].verdict for key in shared)
        share = f"{100 * counts['pass'] / max(1, len(shared)):.1f}%"
        rest = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
        console.print(f"{name} on {len(shared)} samples: {share} pass ({rest})", soft_wrap=True)


def table(outcomes: Mapping[str, Outcome]) -> Table:
    """Return the counts of operators that have a sample that does not pass, and the sums."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    dtypes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for key, outcome in outcomes.items():
        name, dtype, _ = key.rsplit("/", 2)
        counts[name][outcome.verdict] += 1
        dtypes[f"all in {dtype}"][outcome.verdict] += 1
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    drawn = Table()
    drawn.add_column("operator")
    for column in (*VERDICTS, "all"):
        drawn.add_column(column, justify="right")
    failing = {name: c for name, c in counts.items() if c["pass"] < c.total()}
    sums = [*sorted(dtypes.items()), (f"all {len(counts)} operators", total)]
    for name, counter in [*sorted(failing.items()), *sums]:
        drawn.add_row(name, *(str(counter[v]) for v in VERDICTS), str(counter.total()))
    return drawn


if __name__ == "__main__":
    sys.exit(main())
