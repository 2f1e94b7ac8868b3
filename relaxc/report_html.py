"""The report as one HTML page without any outside reference.

`drawing/page.html` has the style and the script; this module fills in the sections, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.drawing.fusion_groups import Group
from relaxc.drawing.graph_section import box_facts, graph_groups, graph_section
from relaxc.drawing.memory_picture import memory_svg
from relaxc.report import PASS_COLUMNS, ROOFLINE_COLUMNS, RULE_COLUMNS, format_bytes

if TYPE_CHECKING:
    from relaxc.report import Report

Section = Callable[["Report", Sequence[Group]], str]
_FIRST = 15  # kernel calls shown at once
_TEMPLATE = Path(__file__).parent / "drawing" / "page.html"


def render_html(report: Report) -> str:
    """Return the page."""
    title = escape(f"relaxc report: {report.source}")
    groups = graph_groups(report)
    body = f"<h1>{title}</h1>" + "\n".join(section(report, groups) for section in SECTIONS)
    facts = json.dumps(box_facts(report, groups)).replace("<", "\\u003c")
    page = _TEMPLATE.read_text(encoding="utf-8")
    # The facts last: they may hold any text, so nothing is looked for in them.
    for mark, text in (("TITLE", title), ("BODY", body), ("FACTS", facts)):
        page = page.replace(f"<!--{mark}-->", text, 1)
    return page


def _summary(report: Report, groups: Sequence[Group]) -> str:
    rows = report.summary_rows()
    tiles = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for label, value in rows
        if not label.startswith("compile")
    )
    return f'<div class="tiles">{tiles}</div>'


def _graph(report: Report, groups: Sequence[Group]) -> str:
    return graph_section(report, groups)


def _kernels(report: Report, groups: Sequence[Group]) -> str:
    """Return the calls in order of their arithmetic; those of the report where no graph is kept."""
    if groups:
        calls = [(g.name, g.kernel, g.details) for g in groups if g.details]
    else:
        calls = [("", str(kernel.get("name", "")), kernel) for kernel in report.kernels]
    most = max((_figure(d.get("flops")) for _, _, d in calls), default=0.0) or 1.0
    rows = [
        f"<tr{_pick(name)}><td>{escape(kernel)}</td><td>{escape(str(d.get('rule', '')))}</td>"
        f'<td class="number">{_number(d.get("flops"))}</td>'
        f'<td class="number">{_number(d.get("bytes"))}</td>'
        f'<td><div class="bar"><i style="width:{100 * _figure(d.get("flops")) / most:.1f}%"></i>'
        f"</div></td><td>{escape(name)}</td></tr>"
        for name, kernel, d in sorted(calls, key=lambda call: -_figure(call[2].get("flops")))
    ]
    head = (
        '<tr><th>kernel</th><th>rule</th><th class="number">FLOP</th><th class="number">bytes</th>'
        "<th>share of the largest</th><th>tensor</th></tr>"
    )
    rest = ""
    if len(rows) > _FIRST:
        table = f"<table>{head}{''.join(rows[_FIRST:])}</table>"
        rest = f"<details><summary>{len(rows) - _FIRST} more</summary>{table}</details>"
    limits = report.roofline_rows()
    bounds = f"<h2>What bounds the kernels</h2>{_table(limits, ROOFLINE_COLUMNS)}" if limits else ""
    return (
        f"<h2>Kernels by schedule rule</h2>{_table(report.rule_rows(), RULE_COLUMNS)}{bounds}"
        f"<h2>Kernel calls</h2><table>{head}{''.join(rows[:_FIRST])}</table>{rest}"
    )


def _passes(report: Report, groups: Sequence[Group]) -> str:
    did = _table(report.fired_rows(), ("pass", "what", "times"))
    phases = [(name, s, f"{s:.2f} s") for name, s in report.phase_seconds.items()]
    return (
        f"<h2>Passes</h2>{_table(report.pass_rows(), PASS_COLUMNS)}"
        f"<h2>What the passes did</h2>{did}<h2>Compile time</h2>{_bars(phases)}"
    )


def _declined(report: Report, groups: Sequence[Group]) -> str:
    rows = report.declined_rows()
    table = _table(rows, ("pass", "subject", "reason", "times"))
    return f"<h2>Declined</h2><details><summary>{len(rows)} notes</summary>{table}</details>"


def _memory(report: Report, groups: Sequence[Group]) -> str:
    sizes = [
        ("without reuse", report.naive_bytes),
        ("arena", report.arena_bytes),
        ("lower bound", report.lower_bound_bytes),
    ]
    rows = [(name, float(size), format_bytes(size)) for name, size in sizes if size is not None]
    if not rows:
        return ""
    return f"<h2>Memory for activations</h2>{_bars(rows)}{memory_svg(report)}"


# A section is HTML made of the report and its kernel calls, "" where it has nothing to show.
SECTIONS: tuple[Section, ...] = (_summary, _graph, _kernels, _memory, _passes, _declined)


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


def _pick(name: str) -> str:
    return f' class="pick" data-key="{escape(name)}"' if name else ""


def _figure(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "")
