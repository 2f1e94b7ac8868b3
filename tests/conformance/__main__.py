"""Run ONNX's conformance cases: `python -m tests.conformance [--filter REGEX] [--update]`.

Exit code 1 if a case is worse than `not_passing.json` says, or fails in another way.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from tests.conformance.cases import SUITES, Case, load_cases
from tests.conformance.known import changes, read_known, write_known
from tests.conformance.run_case import VERDICTS, Outcome
from tests.conformance.workers import run_cases


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run, print, compare with the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filter", default="", help="regular expression on suite/name")
    parser.add_argument(
        *("--suite",),
        action="append",
        choices=list(SUITES),
        help="only this suite; may be repeated",
    )
    parser.add_argument("--every", type=int, default=1, help="run each n-th case only")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=60.0, help="time-out of one case")
    parser.add_argument("--update", action="store_true", help="rewrite the list of failures")
    parser.add_argument("--quiet", action="store_true", help="do not print each failing case")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    suites = tuple(options.suite) if options.suite else tuple(SUITES)
    cases = load_cases(options.filter, suites)[:: options.every]
    outcomes = _run(cases, options, console)
    console.print(_table(outcomes))
    found = changes(outcomes, read_known())
    for change in found:
        color = "red" if change.is_regression else "green"
        what = "regression" if change.is_regression else "improved"
        line = f"{change.key}: {change.before} -> {change.after.verdict} {change.after.reason}"
        console.print(f"[{color}]{what}[/] {escape(line)}", soft_wrap=True)
    if options.update:
        write_known(outcomes)
        return 0
    return 1 if any(change.is_regression for change in found) else 0


def _run(cases: list[Case], options: argparse.Namespace, console: Console) -> dict[str, Outcome]:
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=len(cases))

        def show(case: Case, outcome: Outcome) -> None:
            progress.advance(task)
            if outcome.verdict != "pass" and not options.quiet:
                line = f"{outcome.verdict:12}{case.key}: {outcome.reason}"
                progress.console.print(escape(line), soft_wrap=True)

        return run_cases(cases, options.workers, options.seconds, show)


def _table(outcomes: Mapping[str, Outcome]) -> Table:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for key, outcome in outcomes.items():
        counts[key.split("/")[0]][outcome.verdict] += 1
    table = Table()
    table.add_column("suite")
    for column in (*VERDICTS, "all"):
        table.add_column(column, justify="right")
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    for name, counter in [*sorted(counts.items()), ("all", total)]:
        table.add_row(name, *(str(counter[v]) for v in VERDICTS), str(counter.total()))
    return table


if __name__ == "__main__":
    sys.exit(main())
