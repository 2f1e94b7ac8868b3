"""Check and time every family of GPU kernels where there is a GPU, against torch and TVM.

    python -m benchmarks.gpu [--only matmul,softmax] [--budget 600] [--output benchmarks/results]

In ten minutes: the numbers of each family and of two models against torch in float32, then medians
of rounds in which the engines take turns: relaxc, torch (cuBLAS, cuDNN), torch.compile, and TVM's
default rules. One table, in Markdown and JSON. Exit codes: 0, 1 (a result is wrong, or relaxc does
not run a case), 2 (there is no CUDA device). `--small` takes small sizes, for a simulated device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.markdown_table import table_line, table_lines

RESULTS = Path(__file__).parent / "results"
_TOLERANCES = {"float32": 1e-4, "float16": 2e-2}  # of the largest number of the reference
_ROUNDS = 5
_ROUND_SECONDS = 0.05
_COLUMNS = ("case", "error", "relaxc us", "of roofline")


class Engine(Protocol):
    """One way to run a case; `prepare` raises where it cannot, and the reason is shown."""

    name: str

    def prepare(self, case: Any, inputs: Sequence[np.ndarray], small: bool) -> Callable[[], Any]:
        """Return a call that runs the case on inputs that lie on the device."""
        ...

    def array(self, result: Any) -> np.ndarray:
        """Return what a call returned as an array."""
        ...


# (call) -> seconds of one call, everything it started finished.
Clock = Callable[[Callable[[], Any]], float]


@dataclass
class Row:
    """What came of one case: seconds by engine, why others have none, and relaxc's bound."""

    case: str
    dtype: str
    error: float | None = None
    least_seconds: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether relaxc ran the case, and its numbers agree."""
        return self.error is not None and self.error < _TOLERANCES[self.dtype]


def measure(
    name: str,
    case: Any,
    engines: Sequence[Engine],
    reference: Callable[[Any, Sequence[np.ndarray]], np.ndarray],
    clock: Clock,
    *,
    small: bool = False,
) -> Row:
    """Check relaxc, the first of the engines, and time all of them in turns."""
    row = Row(name, case.dtype)
    inputs = case.inputs(small)
    calls: dict[str, Callable[[], Any]] = {}
    for engine in engines:
        try:
            call = engine.prepare(case, inputs, small)
            result = call()
        except Exception as fault:  # whatever an engine raises is its entry in the table
            row.failures[engine.name] = _reason(fault)
            continue
        calls[engine.name] = call
        if engine is engines[0]:
            row.error = relative_error(engine.array(result), reference(case, inputs))
            row.least_seconds = getattr(engine, "least_seconds", None)
    rounds: dict[str, list[float]] = {engine: [] for engine in calls}
    for _ in range(_ROUNDS):
        for engine_name, call in calls.items():
            rounds[engine_name].append(clock(call))
    row.seconds = {engine: statistics.median(times) for engine, times in rounds.items()}
    return row


def relative_error(result: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error relative to the largest number; infinite where shapes differ."""
    if result.shape != expected.shape:
        return float("inf")
    wide, expected = result.astype("float64"), expected.astype("float64")
    worst = float(np.abs(wide - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    return worst if np.isfinite(worst) else float("inf")


def render(rows: Sequence[Row], engines: Sequence[str], device: str, skipped: Sequence[str]) -> str:
    """Return the table as Markdown: times, ratios to relaxc's (above 1: relaxc is faster)."""
    peers = list(engines[1:])
    header = [*_COLUMNS, *(f"{peer} us (ratio)" for peer in peers)]
    lines = [f"# GPU kernels on {device}", ""]
    lines += table_lines(header, (_cells(row, engines[0], peers) for row in rows))
    lines += ["", "Medians of rounds in turns; a ratio is an engine's time over relaxc's."]
    notes = [
        f"- {row.case}, {engine}: {reason}"
        for row in rows
        for engine, reason in row.failures.items()
    ]
    notes += [f"- {row.case}: the numbers are WRONG" for row in rows if not row.is_right]
    notes += [f"- {name}: no time was left" for name in skipped]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _cells(row: Row, ours: str, peers: Sequence[str]) -> list[str]:
    own = row.seconds.get(ours)
    cells = [
        row.case,
        "-" if row.error is None else f"{row.error:.1e}",
        "-" if own is None else f"{1e6 * own:.1f}",
        "-" if own is None or not row.least_seconds else f"{row.least_seconds / own:.0%}",
    ]
    for peer in peers:
        theirs = row.seconds.get(peer)
        ratio = f" ({theirs / own:.2f})" if theirs is not None and own else ""
        cells.append("-" if theirs is None else f"{1e6 * theirs:.1f}{ratio}")
    return cells


def _reason(fault: Exception) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[-1][:200]}" if lines else type(fault).__name__


def device_clock(synchronize: Callable[[], None]) -> Clock:
    """Return a clock that repeats a call until it fills a round, and waits for the device."""

    def seconds(call: Callable[[], Any]) -> float:
        def run(times: int) -> float:
            synchronize()
            begin = time.perf_counter()
            for _ in range(times):
                call()
            synchronize()
            return time.perf_counter() - begin

        times = max(1, min(1000, int(_ROUND_SECONDS / max(run(1), 1e-7))))
        return run(times) / times

    return seconds


def run_cases(
    cases: Mapping[str, Any],
    engines: Sequence[Engine],
    reference: Callable[[Any, Sequence[np.ndarray]], np.ndarray],
    clock: Clock,
    *,
    budget: float,
    small: bool,
    now: Callable[[], float] = time.monotonic,
) -> tuple[list[Row], list[str]]:
    """Measure cases while there is time; return the rows, and the names of those left out."""
    begin, rows, skipped = now(), [], []
    for name, case in cases.items():
        if now() - begin > budget:
            skipped.append(name)
            continue
        row = measure(name, case, engines, reference, clock, small=small)
        print(table_line(_cells(row, engines[0].name, [e.name for e in engines[1:]])), flush=True)
        rows.append(row)
    return rows, skipped


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; return the exit code."""
    options = _parse(arguments)
    from benchmarks.gpu_cases import CASES

    unknown = [name for name in options.only if name not in CASES]
    if unknown:
        print(f"no case is called {unknown[0]!r}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    from benchmarks.gpu_engines import find_device, installed_engines, torch_reference

    device = find_device()
    if device is None:
        print(
            "there is no CUDA device here (or no driver): nothing was measured. What can be "
            "checked without one is in tests/cuda; see docs/cuda.md",
            file=sys.stderr,
        )
        return 2
    engines = installed_engines(device)
    rows, skipped = run_cases(
        {name: case for name, case in CASES.items() if not options.only or name in options.only},
        *(engines, torch_reference, device_clock(device.synchronize)),
        budget=options.budget,
        small=options.small,
    )
    text = render(rows, [engine.name for engine in engines], device.name, skipped)
    print(f"\n{text}")
    stem = f"{datetime.date.today().isoformat()}-gpu-{device.name.lower().replace(' ', '-')}"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{stem}.md").write_text(text)
    document = {"device": device.name, "rows": [asdict(row) for row in rows], "skipped": skipped}
    (options.output / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row.is_right for row in rows) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--budget", type=float, default=600.0, help="seconds in all")
    parser.add_argument("--small", action="store_true", help="small sizes, for a simulated device")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
