"""The report: totals, text, JSON and HTML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relax_passes.pass_base import PassLog
from relaxc.errors import InvalidInput
from relaxc.report import Report, format_bytes


def make_report() -> Report:
    log = PassLog()
    log.fire("fold_batch_norm", "folded <bn1> into conv1")
    log.fire("fold_batch_norm", "folded <bn1> into conv1")
    log.decline("conv2d_nchwc", "fused_conv", "3 is [prime]")
    log.metrics.update(
        kernels=[
            {"name": "conv", "rule": "conv2d_nchwc", "flops": 3_000_000, "bytes": 500},
            {"name": "copy", "rule": "elementwise", "flops": None, "bytes": 24},
        ],
        arena_bytes=2048,
        lower_bound_bytes=2000,
        naive_bytes=9000,
        layout_transforms=1,
        pass_seconds={"fold_batch_norm": 0.25},
        passes=[
            {
                "name": "fold_batch_norm",
                "phase": "rewrite",
                "seconds": 0.25,
                "modified": True,
                "bindings": (30, 25),
                "kernels": (0, 0),
                "removed": {"nn.batch_norm": 5, "a": 1, "b": 1, "c": 1, "d": 1},
                "added": {"add": 5},
            }
        ],
        arena=[("a", 0, 128)],
    )
    return Report.from_log(log, {"import": 1.0, "build": 2.0}, "model.onnx")


def test_totals() -> None:
    report = make_report()
    assert (report.flops, report.bytes_moved, report.seconds) == (3_000_000, 524, 3.0)
    assert report.metrics == {"arena": [["a", 0, 128]]}


def test_text_shows_what_fired_and_what_was_declined() -> None:
    text = str(make_report())
    for part in (
        "model.onnx",
        "2.00 KiB",
        "folded <bn1>",
        "3 is [prime]",
        "conv2d_nchwc",
        "3.00 s",
        "250.0",
        "30 -> 25",
        "-5 nn.batch_norm",
        "+5 add",
    ):
        assert part in text


def test_json_round_trip(tmp_path: Path) -> None:
    report = make_report()
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    data = json.loads(report.to_json(tmp_path / "report.json"))
    assert data["flops"] == 3_000_000 and data["naive_bytes"] == 9000
    assert json.loads((tmp_path / "report.json").read_text()) == data


def test_html_is_one_escaped_page_without_outside_references(tmp_path: Path) -> None:
    page = make_report().to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    assert "folded &lt;bn1&gt;" in page and "<bn1>" not in page
    assert "http" not in page and "src=" not in page and "@import" not in page


def test_empty_report_renders() -> None:
    assert "kernels" in str(Report()) and "</html>" in Report().to_html()


def test_unwritable_path(tmp_path: Path) -> None:
    for write in (make_report().to_json, make_report().to_html):
        with pytest.raises(InvalidInput, match="cannot write"):
            write(tmp_path / "no" / "report")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (5 << 30, "5.00 GiB")]
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_a_shared_kernel_counts_once_a_call() -> None:
    """Equal kernels are one function; one run still executes it at each call."""
    log = PassLog()
    log.metrics["kernels"] = [
        {"name": "layer", "rule": "matmul", "calls": 4, "flops": 10, "bytes": 6},
        {"name": "tail", "rule": "elementwise", "calls": 1, "flops": 1, "bytes": 2},
    ]
    report = Report(kernels=log.metrics["kernels"])
    assert (report.flops, report.bytes_moved) == (41, 26)
    assert ("kernels", "2 (5 calls)") in report.summary_rows()
