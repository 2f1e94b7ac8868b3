"""What a compilation did and what the compiled model costs, as text, JSON and HTML."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxc.errors import InvalidInput

if TYPE_CHECKING:
    from relax_passes.pass_base import PassLog

_KNOWN_METRICS = frozenset(
    (
        *("kernels", "arena_bytes", "lower_bound_bytes", "naive_bytes"),
        *("layout_transforms", "kernel_count", "pass_seconds", "passes", "graphs"),
    )
)


@dataclass(frozen=True)
class Report:
    """Facts about one compilation.

    `kernels` has one dict per distinct kernel: `name`, `rule` (the schedule rule that took it),
    `calls` (how often one run calls it), and `flops` and `bytes` of one call; of an NVIDIA GPU also
    `least_seconds` of one call and its `bound` (`tir_schedules.roofline`). Sizes are in
    bytes, times in seconds. `lower_bound_bytes` is the largest sum of buffers alive at once;
    `naive_bytes` is what the buffers take without any reuse. `passes` has one dict for each run of
    a pass: `name`, `phase`, `seconds`, `modified`, `bindings` and `kernels` (before, after), and
    the operators `removed` and `added`. `graphs` describes the graph after the phases import,
    lower and schedule (`relax_passes.analysis.graph_summary`); it is empty for very large ones. A
    value is None where the pass that measures it did not run.
    """

    source: str = ""
    kernels: list[dict[str, Any]] = field(default_factory=list)
    arena_bytes: int | None = None
    lower_bound_bytes: int | None = None
    naive_bytes: int | None = None
    layout_transforms: int | None = None
    fired: list[tuple[str, str]] = field(default_factory=list)
    declined: list[tuple[str, str, str]] = field(default_factory=list)
    phase_seconds: dict[str, float] = field(default_factory=dict)
    pass_seconds: dict[str, float] = field(default_factory=dict)
    passes: list[dict[str, Any]] = field(default_factory=list)
    graphs: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def flops(self) -> int:
        """Floating-point operations of one run, over the kernels whose count is static."""
        return int(_total(self.kernels, "flops"))

    @property
    def bytes_moved(self) -> int:
        """Bytes that the kernels read and write in one run, where static."""
        return int(_total(self.kernels, "bytes"))

    @property
    def seconds(self) -> float:
        """Wall time of the whole compilation."""
        return sum(self.phase_seconds.values())

    @staticmethod
    def from_log(log: PassLog, phase_seconds: dict[str, float], source: str) -> Report:
        """Build the report from the notes that the passes took."""
        metrics = log.metrics
        return Report(
            source=source,
            kernels=_plain(metrics.get("kernels", [])),
            arena_bytes=metrics.get("arena_bytes"),
            lower_bound_bytes=metrics.get("lower_bound_bytes"),
            naive_bytes=metrics.get("naive_bytes"),
            layout_transforms=metrics.get("layout_transforms"),
            fired=list(log.fired),
            declined=list(log.declined),
            phase_seconds=dict(phase_seconds),
            pass_seconds=dict(metrics.get("pass_seconds", {})),
            passes=_plain(metrics.get("passes", [])),
            graphs=_plain(metrics.get("graphs", {})),
            metrics=_plain({k: v for k, v in metrics.items() if k not in _KNOWN_METRICS}),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dict; `from_dict` reads it back."""
        return _plain(dataclasses.asdict(self))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Report:
        """Rebuild a report from `to_dict`'s dict."""
        fields = dict(data)
        fields["fired"] = [(p, what) for p, what in fields["fired"]]
        fields["declined"] = [(p, subject, reason) for p, subject, reason in fields["declined"]]
        return Report(**fields)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the report as JSON with its totals, and write it to `path` if one is given.

        Raises:
            InvalidInput: If the file cannot be written.
        """
        totals = {"flops": self.flops, "bytes_moved": self.bytes_moved, "seconds": self.seconds}
        text = json.dumps({**self.to_dict(), **totals}, indent=1)
        if path is not None:
            _write(Path(path), text)
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one self-contained HTML page, and write it to `path` if given.

        Raises:
            InvalidInput: If the file cannot be written.
        """
        from relaxc.report_html import render_html

        text = render_html(self)
        if path is not None:
            _write(Path(path), text)
        return text

    def __str__(self) -> str:
        """Show the totals, the memory, the kernels by rule, what fired and what was declined."""
        from rich.console import Console

        # 100 columns whatever the terminal: the text is for files as much as for eyes.
        console = Console(file=io.StringIO(), width=100, highlight=False)
        for part in self.__rich_console__(console, None):
            console.print(part)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().rstrip()

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """Yield the report's tables to rich."""
        from rich.markup import escape
        from rich.table import Table

        def table(title: str, rows: Sequence[Sequence[str]], *columns: str) -> Table:
            grid = Table(title=title, title_justify="left", show_header=bool(columns))
            for column in columns or ("", ""):
                grid.add_column(column, overflow="fold")
            for row in rows:
                grid.add_row(*(escape(cell) for cell in row))
            return grid

        yield table(f"relaxc report: {escape(self.source)}", self.summary_rows())
        yield table("kernels by schedule rule", self.rule_rows(), *RULE_COLUMNS)
        if rows := self.roofline_rows():
            yield table("what bounds the kernels", rows, *ROOFLINE_COLUMNS)
        if self.passes:
            yield table("passes", self.pass_rows(), *PASS_COLUMNS)
        if self.fired:
            yield table("what the passes did", self.fired_rows(), "pass", "what", "times")
        if self.declined:
            yield table("declined", self.declined_rows(), "pass", "subject", "reason", "times")

    def summary_rows(self) -> list[tuple[str, str]]:
        """Return the totals as (label, value) text."""
        rows = [
            (
                "kernels",
                f"{len(self.kernels)} ({sum(k.get('calls', 1) for k in self.kernels)} calls)",
            ),
            ("floating-point operations", format_count(self.flops)),
            ("bytes moved by kernels", format_bytes(self.bytes_moved)),
        ]
        if "launches" in self.metrics:  # on a GPU
            rows.append(("launches a run", str(self.metrics["launches"])))
        if "gpu" in self.metrics:
            least = 1e6 * _total(self.kernels, "least_seconds")
            rows.append((f"at least, on {self.metrics['gpu']}", f"{least:.2f} us (roofline)"))
        if self.layout_transforms is not None:
            rows.append(("layout transforms left", str(self.layout_transforms)))
        if self.arena_bytes is not None:
            rows.append(("arena", format_bytes(self.arena_bytes)))
            for label, size in (
                ("arena, lower bound", self.lower_bound_bytes),
                ("buffers without reuse", self.naive_bytes),
            ):
                if size is not None:
                    rows.append((label, format_bytes(size)))
        phases = ", ".join(f"{name} {s:.2f}" for name, s in self.phase_seconds.items())
        rows.append(("compile time", f"{self.seconds:.2f} s ({phases})"))
        return rows

    def rule_rows(self) -> list[tuple[str, str, str, str]]:
        """Return kernels, GFLOP and bytes per schedule rule, the most arithmetic first."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for kernel in self.kernels:
            groups.setdefault(str(kernel.get("rule", "")), []).append(kernel)

        ordered = sorted(groups.items(), key=lambda item: -_total(item[1], "flops"))
        return [
            (
                rule,
                str(len(ks)),
                f"{_total(ks, 'flops') / 1e9:.3f}",
                format_bytes(_total(ks, "bytes")),
            )
            for rule, ks in ordered
        ]

    def roofline_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Return the kernels of a GPU with what bounds them, those that take longest first."""
        kernels = [k for k in self.kernels if "least_seconds" in k]
        kernels.sort(key=lambda k: -k["least_seconds"] * k["calls"])
        return [
            (
                str(k["name"]),
                str(k["calls"]),
                f"{k['flops'] / 1e9:.3f}",
                format_bytes(k["bytes"]),
                f"{1e6 * k['least_seconds']:.2f}",
                str(k["bound"]),
            )
            for k in kernels
        ]

    def pass_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Return phase, pass, time, and effect of each run of a pass in order."""
        return [
            (
                run["phase"],
                run["name"],
                f"{1e3 * run['seconds']:.1f}",
                _change(*run["bindings"]),
                _change(*run["kernels"]),
                _operators(run["removed"], "-") + _operators(run["added"], "+"),
            )
            for run in self.passes
        ]

    def fired_rows(self) -> list[tuple[str, str, str]]:
        """Return what fired, equal notes counted."""
        counts: dict[tuple[str, str], int] = {}
        for note in self.fired:
            counts[note] = counts.get(note, 0) + 1
        return [(name, what, str(count)) for (name, what), count in counts.items()]

    def declined_rows(self) -> list[tuple[str, str, str, str]]:
        """Return what was declined and why, equal notes counted."""
        counts: dict[tuple[str, str, str], int] = {}
        for note in self.declined:
            counts[note] = counts.get(note, 0) + 1
        return [(*note, str(count)) for note, count in counts.items()]


RULE_COLUMNS = ("rule", "kernels", "GFLOP", "bytes moved")
ROOFLINE_COLUMNS = ("kernel", "calls", "GFLOP", "bytes", "at least, us", "bound by")
PASS_COLUMNS = ("phase", "pass", "ms", "bindings", "kernel calls", "operators removed and added")
_SHOWN_OPERATORS = 4  # the most frequent ones say what a pass did


def format_bytes(size: float) -> str:
    """Return a size with a binary unit, such as "9.83 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def format_count(number: float) -> str:
    """Return a count with a decimal unit, such as "8.205 G" or "0.31 M"."""
    return f"{number / 1e9:.3f} G" if number >= 1e8 else f"{number / 1e6:.2f} M"


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _operators(counts: dict[str, int], sign: str) -> str:
    """Return operators with their counts, such as "-2 add -1 exp ", the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = "".join(f"{sign}{count} {name} " for name, count in ordered[:_SHOWN_OPERATORS])
    return shown + ("... " if len(ordered) > _SHOWN_OPERATORS else "")


def _plain(value: Any) -> Any:
    """Turn TVM's and NumPy's containers and numbers into JSON's."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "__iter__"):
        return [_plain(item) for item in value]
    if hasattr(value, "__index__"):
        return int(value)
    return str(value)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidInput(f"cannot write the report: {reason}", file=str(path)) from fault


def _total(kernels: list[dict[str, Any]], key: str) -> float:
    """Sum a figure over all calls of one run, where it is static."""
    known = (k for k in kernels if isinstance(k.get(key), int | float))
    return math.fsum(k[key] * k.get("calls", 1) for k in known)
