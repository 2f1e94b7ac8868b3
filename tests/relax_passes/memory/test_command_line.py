"""Packing a CSV file of live ranges from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax_passes.memory.__main__ import main

ROWS = "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n"


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    path = tmp_path / "buffers.csv"
    path.write_text(ROWS)
    return path


def test_prints_peak_and_bound(instance: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(instance), "--capacity", "12"]) == 0
    assert "peak 12  bound 12" in capsys.readouterr().out


def test_too_small_capacity_fails(instance: Path):
    assert main([str(instance), "--capacity", "11"]) == 1


@pytest.mark.parametrize("text", ["lower,upper\n0,3\n", "id,lower,upper,size\na,3,0,4\n"])
def test_malformed_file_is_an_error_message(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert "bad.csv" in capsys.readouterr().err


def test_missing_file_is_an_error_message(tmp_path: Path):
    assert main([str(tmp_path / "none.csv")]) == 2
