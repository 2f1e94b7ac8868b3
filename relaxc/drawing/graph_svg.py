"""Draw graphs as SVG: the imported graph, its operators in boxes of kernels, kernels alone.

Every box carries `data-key`, the name of its tensor; the page's script shows what `facts` says of
it. Colours are those of the fusion categories (`page.css` names them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from relaxc.drawing.fusion_groups import Group
from relaxc.drawing.layered_layout import Layout, Point, place_boxes
from relaxc.report import format_bytes

_CHARACTER, _ROW, _PADDING, _HEADER = 6.8, 18.0, 8.0, 20.0
_LONGEST = 44  # characters of a label


@dataclass
class Box:
    """A box: a title, rows below it (text, CSS class, key), and what it stands for."""

    key: str
    title: str
    css: str = ""
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    reads: list[int | str] = field(default_factory=list)

    @property
    def size(self) -> Point:
        """Width and height that hold the text."""
        longest = max(len(self.title), *(len(text) + 1 for text, _, _ in self.rows), 0)
        rows = len(self.rows) * _ROW + (4 if self.rows else 0)
        return 2 * _PADDING + longest * _CHARACTER, _HEADER + rows


def imported_boxes(graph: dict[str, Any], categories: dict[str, str]) -> list[Box]:
    """Return a box for each operator of the imported graph.

    `categories` gives the category that a tensor's lowered operator has; one that is missing was
    folded, merged or removed on the way.
    """
    return [
        Box(n["name"], shorten(n["op"]), categories.get(n["name"], "gone"), [], n["reads"])
        for n in graph["nodes"]
    ]


def kernel_boxes(groups: Sequence[Group], *, operators: bool) -> list[Box]:
    """Return a box for each kernel call, with its operators as rows if asked for."""
    boxes = []
    for group in groups:
        title = kernel_title(group)
        category = anchor_category(group)
        if operators and len(group.members) > 1:
            rows = [(shorten(m["op"]), m.get("category", "view"), m["name"]) for m in group.members]
            boxes.append(Box(group.name, title, "kernel", rows, group.reads))
        else:
            boxes.append(Box(group.name, title, category, [], group.reads))
    return boxes


def kernel_title(group: Group) -> str:
    """Return a short name of a kernel call, its arithmetic and the bytes it moves."""
    flops, moved = (group.details.get(key) for key in ("flops", "bytes"))
    work = f" · {flops / 1e6:.1f} MFLOP" if isinstance(flops, int) and flops >= 100_000 else ""
    traffic = f" · {format_bytes(moved)}" if isinstance(moved, int) else ""
    return shorten(group.kernel) + work + traffic


def anchor_category(group: Group) -> str:
    """Return the greatest category of a group's operators: what fusion calls its anchor."""
    order = list(CATEGORIES)
    found = [m.get("category", "view") for m in group.members] or ["view"]
    return max(found, key=order.index)


CATEGORIES = {
    "view": "no kernel: the same bytes in another shape",
    "elementwise": "each result reads one element at the same place",
    "broadcast": "some axes are read again and again",
    "injective": "each result reads one element elsewhere: transpose, slice, pad",
    "reduction": "each result reads a range: sum, softmax, layer norm",
    "complex_out_fusable": "matrix product, convolution, pooling",
    "opaque": "nothing may be fused",
}


def draw(boxes: Sequence[Box], label: str) -> str:
    """Return an SVG of the boxes in layers and the edges between them."""
    edges = sorted(
        {(s, t) for t, box in enumerate(boxes) for s in box.reads if isinstance(s, int) and s < t}
    )
    layout = place_boxes([box.size for box in boxes], edges)
    lines = "".join(
        f'<path d="{_curve(path)}" data-from="{escape(boxes[s].key)}" '
        f'data-to="{escape(boxes[t].key)}"/>'
        for (s, t), path in zip(edges, layout.paths, strict=True)
    )
    shapes = "".join(_box(box, corner) for box, corner in zip(boxes, layout.corners, strict=True))
    return (
        f'<svg class="graph" role="img" aria-label="{escape(label)}" {_extent(layout)}>'
        f'<g class="scene"><g class="edges">{lines}</g>{shapes}</g></svg>'
    )


def _extent(layout: Layout) -> str:
    return f'data-width="{layout.width:.0f}" data-height="{layout.height:.0f}"'


def _box(box: Box, corner: Point) -> str:
    (x, y), (width, height) = corner, box.size
    rows = "".join(
        f'<g class="node {css}" data-key="{escape(key)}">'
        f'<rect x="4" y="{_HEADER + i * _ROW:.0f}" width="{width - 8:.0f}" height="{_ROW - 2:.0f}"'
        f' rx="2"/><text x="10" y="{_HEADER + i * _ROW + 12:.0f}">{escape(text)}</text></g>'
        for i, (text, css, key) in enumerate(box.rows)
    )
    return (
        f'<g class="node {box.css}" data-key="{escape(box.key)}" '
        f'transform="translate({x:.1f},{y:.1f})">'
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="4"/>'
        f'<text class="title" x="{_PADDING:.0f}" y="14">{escape(box.title)}</text>{rows}</g>'
    )


def _curve(path: Sequence[Point]) -> str:
    """Return a path that leaves and enters each point vertically."""
    (x, y), *rest = path
    text = f"M{x:.1f} {y:.1f}"
    for next_x, next_y in rest:
        if abs(next_x - x) < 0.5:
            text += f"L{next_x:.1f} {next_y:.1f}"
        else:
            middle = (y + next_y) / 2
            text += f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}"
        x, y = next_x, next_y
    return text


def shorten(text: str) -> str:
    """Return a label that fits a box."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
