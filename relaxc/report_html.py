"""The report as one HTML page without any outside reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from relaxc.report import RULE_COLUMNS, format_bytes

if TYPE_CHECKING:
    from relaxc.report import Report

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2430; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #dfe3ea;
         vertical-align: top; overflow-wrap: anywhere }
.bar { background: #dfe3ea; height: .8rem } .bar i { display: block; height: 100%;
       background: #2f6fb7 }
@media (prefers-color-scheme: dark) { body { color: #e6e9ee; background: #14181f }
  td, th { border-color: #333b48 } .bar { background: #333b48 } }
"""


def render_html(report: Report) -> str:
    """Return the page."""
    title = escape(f"relaxc report: {report.source}")
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>",
        f"<style>{_STYLE}</style><h1>{title}</h1>",
        _table(report.summary_rows()),
        _memory(report),
        "<h2>Compile time</h2>",
        _bars([(name, s, f"{s:.2f} s") for name, s in report.phase_seconds.items()]),
        "<h2>Time per pass</h2>",
        _bars([(name, s, f"{s:.2f} s") for name, s in report.pass_seconds.items()]),
        "<h2>Kernels by schedule rule</h2>",
        _table(report.rule_rows(), RULE_COLUMNS),
        "<h2>Kernels in order</h2>",
        _table(
            [
                (
                    str(index),
                    str(kernel.get("name", "")),
                    str(kernel.get("rule", "")),
                    _number(kernel.get("flops")),
                    _number(kernel.get("bytes")),
                )
                for index, kernel in enumerate(report.kernels)
            ],
            ("", "kernel", "rule", "FLOP", "bytes"),
        ),
        "<h2>What the passes did</h2>",
        _table(report.fired_rows(), ("pass", "what", "times")),
        "<h2>Declined</h2>",
        _table(report.declined_rows(), ("pass", "subject", "reason", "times")),
        "</html>",
    ]
    return "\n".join(parts)


def _memory(report: Report) -> str:
    sizes = [
        ("without reuse", report.naive_bytes),
        ("arena", report.arena_bytes),
        ("lower bound", report.lower_bound_bytes),
    ]
    rows = [(name, float(size), format_bytes(size)) for name, size in sizes if size is not None]
    return f"<h2>Memory for activations</h2>{_bars(rows)}" if rows else ""


def _table(rows: Iterable[Sequence[str]], columns: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _bars(rows: Sequence[tuple[str, float, str]]) -> str:
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td style='width:60%'><div class='bar'>"
        f"<i style='width:{100 * value / longest:.1f}%'></i></div></td><td>{escape(text)}</td></tr>"
        for name, value, text in rows
    )
    return f"<table>{cells}</table>"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "")
