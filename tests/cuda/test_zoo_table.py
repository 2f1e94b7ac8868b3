"""The table of the zoo: docs/cuda.md shows the newest one, in which all is well."""

from __future__ import annotations

from pathlib import Path

from tests.cuda.zoo import MODELS
from tests.cuda.zoo_table import Row, merged, newest, read_rows, shown, write_rows

_DOCS = Path(__file__).parents[2] / "docs" / "cuda.md"


def test_the_documentation_shows_the_newest_table() -> None:
    assert "\n".join(shown(read_rows(newest()))) in _DOCS.read_text()


def test_every_model_has_schedules_and_keeps_its_registers() -> None:
    rows = read_rows(newest())
    assert {row.model for row in rows} == set(MODELS)
    assert [row for row in rows if not row.is_well] == []


def test_a_row_that_is_written_is_read_and_replaced(tmp_path: Path) -> None:
    old, other, new = (
        Row(model, "float16", "sm_80", 8, calls, 3, 99.9, 0, 0, 0, 112)
        for model, calls in (("gpt2", 45), ("bert_base", 99), ("gpt2", 44))
    )
    path = tmp_path / "table.md"
    assert read_rows(path) == []
    write_rows(path, merged([old], [other]), "nvcc 13.0")
    assert read_rows(path) == [other, old]
    write_rows(path, merged(read_rows(path), [new]), "nvcc 13.0")
    assert read_rows(path) == [other, new]
