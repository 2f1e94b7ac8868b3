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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column lower, upper, size"),
        ("lower,upper\n0,3\n", "no column size"),
        ("id,lower,upper,size\na,0,1,4\nb,3,0,4\n", "line 3: needs lower < upper"),
        ("id,lower,upper,size\na,0,3,-4\n", "line 2: needs lower < upper and size >= 0"),
        ("id,lower,upper,size\na,0,3,4k\n", "line 2: size is '4k'"),
        ("id,lower,upper,size\na,0,3\n", "line 2: not 4 values"),
        ("id,lower,upper,size\na,0,3,4,5\n", "line 2: not 4 values"),
        (f"id,lower,upper,size\na,0,3,{1 << 61}\n", "too much"),
        ("\0\0", "bad.csv"),
    ],
)
def test_malformed_file_is_an_error_that_says_where(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert "bad.csv" in error and message in error


def test_a_file_that_is_no_text_is_an_error_message(tmp_path: Path):
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"\xff\xfe\x00")
    assert main([str(path)]) == 2


def test_blank_lines_spaces_and_a_byte_order_mark_are_no_error(tmp_path: Path):
    path = tmp_path / "sheet.csv"
    path.write_bytes(b"\xef\xbb\xbfsize, upper, lower\r\n\r\n4, 3, 0\r\n")
    assert main([str(path), "--capacity", "4"]) == 0
    assert main([str(path), "--capacity", "3"]) == 1


def test_missing_file_is_an_error_message(tmp_path: Path):
    assert main([str(tmp_path / "none.csv")]) == 2
