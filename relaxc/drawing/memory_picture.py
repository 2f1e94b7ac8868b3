"""The memory plan as a picture, time by offset, and as a table beside what others would need."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxc.errors import InvalidInput

if TYPE_CHECKING:
    from relaxc.report import Report

MEMORY_COLUMNS = ("intermediate tensors", "size", "times the bound")


def planned_buffers(report: Report) -> list[dict[str, Any]]:
    """Return the buffers of one arena: name, lower, upper (exclusive, bindings), offset, size.

    It is that of `main`; where only branches and loops have one, the largest of theirs. Empty where
    no tensor of a static size is an intermediate.
    """
    arenas: dict[str, list[dict[str, Any]]] = {}
    for buffer in report.metrics.get("memory_plan", []):
        if buffer["size"]:
            arenas.setdefault(buffer["function"], []).append(buffer)
    return arenas.get("main") or max(arenas.values(), key=lambda found: max(map(_top, found)),
                                     default=[])  # fmt: skip


def memory_rows(report: Report, onnxruntime: int | None = None) -> list[tuple[str, str, str]]:
    """Return rows for `MEMORY_COLUMNS`: without reuse, TVM, ONNX Runtime, relaxc, lower bound.

    Args:
        report: Of a compilation; TVM's figure is there if `plan_memory` ran with `compare=True`.
        onnxruntime: Bytes of its arena (`relaxc.ort_arena`), None if not measured.
    """
    from relaxc.report import format_bytes

    bound = report.lower_bound_bytes or 0
    sizes = [
        ("without reuse", report.naive_bytes),
        ("TVM's planner", report.metrics.get("tvm_planner_bytes")),
        ("ONNX Runtime's arena", onnxruntime),
        ("relaxc", report.arena_bytes),
        ("lower bound: most bytes alive at once", report.lower_bound_bytes),
    ]
    return [
        (name, format_bytes(size), f"{size / bound:.2f}" if bound else "-")
        for name, size in sizes
        if size is not None
    ]


def memory_svg(report: Report) -> str:
    """Return the picture as an SVG element, "" if there is nothing to draw."""
    buffers, peak = planned_buffers(report), report.arena_bytes or 0
    if not buffers or not peak:
        return ""
    width, height = 1000.0, 400.0
    steps = max(buffer["upper"] for buffer in buffers)
    boxes = []
    for number, buffer in enumerate(buffers):
        x, y = width * buffer["lower"] / steps, height * (1 - _top(buffer) / peak)
        wide = width * (buffer["upper"] - buffer["lower"]) / steps
        boxes.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{wide:.1f}' "
            f"height='{height * buffer['size'] / peak:.1f}' fill='{_color(number)}' "
            f"stroke='#fff' stroke-width='.5'><title>{escape(_caption(buffer))}</title></rect>"
        )
    return (
        f"<svg viewBox='0 0 {width:.0f} {height:.0f}' width='100%' role='img' "
        f"aria-label='buffers by time and offset'>{''.join(boxes)}</svg>"
        f"<p>Time from left to right ({steps} bindings), offsets from bottom to top ({peak:,} "
        "bytes). Point at a buffer to see its name.</p>"
    )


def check_picture_path(path: str | Path) -> None:
    """Check, before anything is compiled for it, that a picture can be written to `path`.

    Raises:
        InvalidInput: If matplotlib is missing, it knows no format of that suffix, or there is no
            such folder.
    """
    figure, suffix = _figure(), Path(path).suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if suffix not in known:
        raise InvalidInput(
            f"cannot write the picture: a file of a picture ends in one of .{', .'.join(known)}",
            file=str(path),
        )
    if not Path(path).absolute().parent.is_dir():
        raise InvalidInput("cannot write the picture: no such folder", file=str(path))


def draw_memory(report: Report, path: str | Path) -> None:
    """Write the picture to a file whose suffix matplotlib knows, such as `.png`.

    Raises:
        InvalidInput: If matplotlib is missing, there is nothing to draw, or the file cannot be
            written.
    """
    buffers, peak = planned_buffers(report), report.arena_bytes or 0
    if not buffers or not peak:
        raise InvalidInput("there is no arena to draw: no intermediate has a static size")
    figure = _figure()
    axes = figure.subplots()
    for number, buffer in enumerate(buffers):
        axes.broken_barh(
            [(buffer["lower"], buffer["upper"] - buffer["lower"])],
            (buffer["offset"] / 2**20, buffer["size"] / 2**20),
            facecolor=_color(number),
            edgecolor="white",
            linewidth=0.4,
        )
    steps, load = _load(buffers)
    axes.step(steps, load, where="post", color="black", linewidth=1, label="bytes alive")
    axes.axhline((report.lower_bound_bytes or 0) / 2**20, color="black", linestyle=":",
                 label="lower bound")  # fmt: skip
    axes.set(xlabel="time (bindings)", ylabel="offset in the arena (MiB)", title=report.source)
    axes.legend(loc="upper right")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as fault:
        raise InvalidInput(f"cannot write the picture: {fault}", file=str(path)) from fault


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise InvalidInput("drawing needs matplotlib: pip install matplotlib") from fault
    return Figure(figsize=(11, 6), layout="constrained")


def _load(buffers: Sequence[dict[str, Any]]) -> tuple[list[int], list[float]]:
    """Return the steps at which the bytes alive change, and the MiB alive from each on."""
    change: dict[int, int] = {}
    for buffer in buffers:
        change[buffer["lower"]] = change.get(buffer["lower"], 0) + buffer["size"]
        change[buffer["upper"]] = change.get(buffer["upper"], 0) - buffer["size"]
    steps, load, alive = sorted(change), [], 0
    for step in steps:
        alive += change[step]
        load.append(alive / 2**20)
    return steps, load


def _top(buffer: dict[str, Any]) -> int:
    return int(buffer["offset"] + buffer["size"])


def _caption(buffer: dict[str, Any]) -> str:
    life = f"bindings {buffer['lower']} to {buffer['upper'] - 1}"
    return f"{buffer['name']}: {buffer['size']:,} bytes at {buffer['offset']:,}, {life}"


def _color(number: int) -> str:
    """Return a color that differs from its neighbours': hues a golden ratio apart."""
    red, green, blue = colorsys.hls_to_rgb(number * 0.618034 % 1, 0.6, 0.5)
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"
