"""E9: the memory plan drawn, in the HTML report and as PNG, and compared with other planners."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxc
from relaxc.cli import main
from relaxc.drawing.memory_picture import draw_memory, memory_rows, memory_svg, planned_buffers
from relaxc.errors import InvalidInput
from relaxc.ort_arena import onnxruntime_arena_bytes
from tests.relaxc.small_models import square_chain

SIZE = 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products and transposes in a row: two buffers are alive at once."""
    nodes, value = [], "x"
    for k in range(5):
        nodes.append(helper.make_node("MatMul", [value, "w"], [f"product{k}"]))
        nodes.append(helper.make_node("Softmax", [f"product{k}"], [f"soft{k}"], axis=0))
        value = f"soft{k}"
    model = square_chain(SIZE, nodes, value, ["w"])
    onnx.save(model, folder := tmp_path_factory.mktemp("model") / "chain.onnx")
    return folder


@pytest.fixture(scope="module")
def report(path: Path) -> relaxc.Report:
    return relaxc.compile(path, threads=1, progress=False).report


def test_every_buffer_is_drawn_where_it_lies(report) -> None:
    buffers = planned_buffers(report)
    svg = memory_svg(report)
    assert len(buffers) >= 4
    assert svg.count("<rect") == len(buffers)
    assert all(re.search(rf"<title>{re.escape(b['name'])}: ", svg) for b in buffers)
    assert max(b["offset"] + b["size"] for b in buffers) == report.arena_bytes
    assert svg in report.to_html()


def test_the_picture_is_a_png(report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_memory(report, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_without_an_arena_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no arena"):
        draw_memory(relaxc.Report(), tmp_path / "memory.png")
    assert memory_svg(relaxc.Report()) == ""


def test_where_only_branches_have_arenas_the_largest_is_drawn() -> None:
    """A tensor that an `If` is given comes from the pool, so that `main` may have no arena."""
    plan = [
        {"function": name, "name": name, "lower": 0, "upper": 1, "offset": 0, "size": size}
        for name, size in (("then", 64), ("otherwise", 128))
    ]
    report = relaxc.Report(metrics={"memory_plan": plan}, arena_bytes=128)
    assert [buffer["name"] for buffer in planned_buffers(report)] == ["otherwise"]
    assert "otherwise" in memory_svg(report)


def test_command_line_compares_planners(path: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "out.png"
    assert main(["explain", str(path), "--memory", str(picture), "--quiet", "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    for name in ("without reuse", "TVM's planner", "ONNX Runtime's arena", "relaxc", "lower bound"):
        assert name in shown
    assert "arenas 1, outputs 1" in shown
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "text"), [("out.xyz", "ends in one of"), ("none/out.png", "no such folder")]
)
def test_a_picture_that_cannot_be_written_is_refused_before_compiling(
    path: Path, tmp_path: Path, capsys, monkeypatch, name: str, text: str
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(relaxc, "compile", lambda *_, **__: pytest.fail("it was compiled"))
    assert main(["explain", str(path), "--memory", str(tmp_path / name)]) == 2
    assert text in capsys.readouterr().err


def test_onnxruntime_states_its_arena(path: Path, report) -> None:
    pytest.importorskip("onnxruntime")
    x = np.zeros((SIZE, SIZE), "float32")
    theirs = onnxruntime_arena_bytes(path, {"x": x})
    # Two intermediates are alive at once; what it needs is no less and not much more.
    assert 2 * x.nbytes <= theirs <= 4 * x.nbytes
    assert any(name == "ONNX Runtime's arena" for name, *_ in memory_rows(report, theirs))
