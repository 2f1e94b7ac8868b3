"""The part of the report's page that shows the graph: three views, a legend, facts of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from relaxc.drawing.fusion_groups import Group, fusion_groups
from relaxc.drawing.graph_svg import CATEGORIES, Box, draw, imported_boxes, kernel_boxes

if TYPE_CHECKING:
    from relaxc.report import Report

Facts = dict[str, list[tuple[str, str]]]
_INTRODUCTION = (
    "Drag to move, turn the wheel to zoom, click a box for its facts and neighbours. A box with "
    "rows is one kernel; its rows are the operators it computes in one pass. Dashed operators were "
    "folded, merged or removed before the kernels were made."
)


def graph_groups(report: Report) -> list[Group]:
    """Return the report's kernel calls with their operators; none if it keeps no graphs."""
    graphs = report.graphs
    if "lower" not in graphs or "schedule" not in graphs:
        return []
    return fusion_groups(graphs["lower"], graphs["schedule"], report.kernels)


def graph_section(report: Report, groups: Sequence[Group]) -> str:
    """Return the views as HTML, "" if the report keeps no graphs."""
    views = _views(report, groups)
    if not views:
        return ""
    buttons, pictures = [], []
    for number, (name, title, boxes) in enumerate(views):
        svg = draw(boxes, title).replace("<svg ", f'<svg id="view-{name}" ', 1)
        pictures.append(svg if number == 0 else svg.replace("<svg ", "<svg hidden ", 1))
        pressed = str(number == 0).lower()
        buttons.append(f'<button data-view="{name}" aria-pressed="{pressed}">{title}</button>')
    legend = "".join(
        f'<span title="{escape(meaning)}"><i class="{name}"></i>{name.replace("_", " ")}</span>'
        for name, meaning in CATEGORIES.items()
    )
    return (
        f'<h2>Graph</h2><p class="note">{_INTRODUCTION}</p><div class="tools">{"".join(buttons)}'
        '<span class="push"></span><input id="search" type="search" '
        'placeholder="find a tensor or operator (Enter: next)">'
        '<button id="width">Readable</button><button id="whole">Whole graph</button></div>'
        f'<div class="legend">{legend}<span><i class="gone"></i>gone before fusion</span></div>'
        f'<div class="stage"><div class="views">{"".join(pictures)}</div>'
        '<div class="details" id="details"><h3>Nothing chosen</h3>'
        "Point at a box or click it.</div></div>"
    )


def _views(report: Report, groups: Sequence[Group]) -> list[tuple[str, str, list[Box]]]:
    views: list[tuple[str, str, list[Box]]] = []
    if groups:
        views.append(
            ("fused", "Operators in kernels", kernel_boxes(groups, operators=True)),
        )
        views.append(("kernels", "Kernels only", kernel_boxes(groups, operators=False)))
    if "import" in report.graphs:
        kept = {m["name"]: m.get("category", "view") for group in groups for m in group.members}
        views.append(("imported", "As imported", imported_boxes(report.graphs["import"], kept)))
    return views


def box_facts(report: Report, groups: Sequence[Group]) -> Facts:
    """Return what the page shows of each box, by the name of its tensor."""
    facts: Facts = {}
    for node in report.graphs.get("import", {}).get("nodes", []):
        facts.setdefault(node["name"], []).extend(
            [("imported operator", node["op"]), ("result", node["type"])]
        )
        if node["weights"]:
            facts[node["name"]].append(("weights", ", ".join(node["weights"])))
    for group in groups:
        for member in group.members:
            if member["name"] != group.name or len(group.members) > 1:
                facts.setdefault(member["name"], []).extend(_operator_facts(member, group))
        facts.setdefault(group.name, []).extend(_kernel_facts(group))
    for _, subject, reason in report.declined:
        for name in {subject, *(g.name for g in groups if g.kernel == subject)} & facts.keys():
            facts[name].append(("declined", reason))
    return facts


def _operator_facts(member: dict[str, Any], group: Group) -> list[tuple[str, str]]:
    facts = [("lowered operator", member["op"])]
    if "category" in member:
        facts += [("category", member["category"]), *_cost_facts(member)]
    if member["name"] != group.name:
        facts.append(("computed in the kernel of", group.name))
    return facts


def _kernel_facts(group: Group) -> list[tuple[str, str]]:
    facts = [("kernel", group.kernel), ("kernel's result", group.type)]
    if len(group.members) > 1:
        facts.append(("operators", " → ".join(m["op"] for m in group.members)))
    if "rule" in group.details:
        facts.append(("schedule rule", str(group.details["rule"])))
    return facts + _cost_facts(group.details)


def _cost_facts(costs: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (label, f"{costs[key]:,}")
        for key, label in (("flops", "floating-point operations"), ("bytes", "bytes moved"))
        if isinstance(costs.get(key), int)
    ]
