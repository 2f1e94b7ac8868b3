"""The benchmark's document as Markdown: speed, compilation, memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def render_markdown(document: dict[str, Any]) -> str:
    """Return the page that `benchmarks.run` writes beside its JSON."""
    rows = document["rows"]
    versions = ", ".join(f"{k} {v}" for k, v in document["versions"].items() if v)
    peers = list(dict.fromkeys(n for r in rows for n in r["engines"] if n != "relaxc"))
    return "\n".join(
        [
            f"# Benchmark, {document['date']}",
            "",
            f"{document['cpu']}, {document['cores']} core(s), Python {document['python']}; "
            f"{versions}.",
            "Medians of interleaved runs in milliseconds; (1.2x) is a time 1.2 times relaxc's.",
            "The error is relaxc's max abs error over ONNX Runtime's largest output.",
            "",
            *table_lines(
                ["model", "threads", "relaxc", *peers, "error"],
                (_speed(row, peers) for row in rows),
            ),
            "",
            "Compilation: seconds, by phase, and what came out.",
            "",
            *table_lines(
                ["model", "threads", "seconds", "where", "distinct kernels", "layout transforms"],
                (_compilation(row) for row in rows if "compile" in row),
            ),
            "",
            "Arena in MB: without reuse, TVM's planner, relaxc's, the largest sum alive at once.",
            "",
            *table_lines(
                ["model", "threads", "naive", "TVM", "relaxc", "bound", "relaxc / bound"],
                (_arena(row) for row in rows if "compile" in row),
            ),
        ]
    )


def _speed(row: dict[str, Any], peers: Sequence[str]) -> list[str]:
    engines = row["engines"]
    ours = engines.get("relaxc", {}).get("median_ms")
    cells = [row["model"], str(row["threads"])]
    cells.append(f"{ours:.2f}" if ours else f"failed: {row['failure']}")
    for peer in peers:
        theirs = engines.get(peer, {}).get("median_ms")
        if theirs is None:
            cells.append("-")
        else:
            cells.append(f"{theirs:.2f} ({theirs / ours:.2f}x)" if ours else f"{theirs:.2f}")
    error = engines.get("relaxc", {}).get("relative_error")
    cells.append("-" if error is None else f"{error:.1e}")
    return cells


def _compilation(row: dict[str, Any]) -> list[str]:
    facts = row["compile"]
    phases = sorted(facts["phase_seconds"].items(), key=lambda item: -item[1])
    where = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases if seconds >= 0.05)
    return [
        row["model"],
        str(row["threads"]),
        f"{facts['seconds']:.1f}",
        where,
        str(facts["kernels"]),
        _or_dash(facts["layout_transforms"]),
    ]


def _arena(row: dict[str, Any]) -> list[str]:
    facts = row["compile"]
    sizes = [facts[key] for key in ("arena_naive", "arena_tvm", "arena", "arena_bound")]
    shown = ["-" if size is None else f"{size / 1e6:.2f}" for size in sizes]
    known = facts["arena"] is not None and facts["arena_bound"]
    ratio = f"{facts['arena'] / facts['arena_bound']:.3f}" if known else "-"
    return [row["model"], str(row["threads"]), *shown, ratio]


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its header and the line under it first."""
    return list(map(table_line, [header, ["---"] * len(header), *rows]))


def table_line(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cells) + " |"
