"""Measured answers on disk: read back, never half written, and never trusted blindly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from relax_passes.tuning.answer_store import AnswerStore
from tir_schedules.machine import Machine


@dataclass(frozen=True)
class Rows:
    """A question for tests."""

    count: int

    def options(self, _: Machine) -> list[int | None]:
        return [6, 4, None]


def _written(folder: Path, key: str = "zen") -> AnswerStore:
    store = AnswerStore(folder, key)
    store.add(Rows(7), 4)
    store.add(Rows(8), None)
    store.save()
    return store


def test_answers_are_read_back(tmp_path: Path) -> None:
    _written(tmp_path / "new")
    again = AnswerStore(tmp_path / "new", "zen")
    assert (again.find(Rows(7), [6, 4]), again.find(Rows(8), [6, None])) == ([4], [None])
    assert not again.find(Rows(9), [6, 4]) and not again.fault


def test_another_processor_has_other_answers(tmp_path: Path) -> None:
    _written(tmp_path)
    assert not AnswerStore(tmp_path, "zen 2").find(Rows(7), [6, 4])


def test_an_answer_that_is_no_option_any_more_does_not_count(tmp_path: Path) -> None:
    _written(tmp_path)
    assert not AnswerStore(tmp_path, "zen").find(Rows(7), [6, 5])


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda text: text[: len(text) // 2],
    "not text": lambda _: b"\xff\xfe\x00",
    "a list": lambda _: b"[1, 2]",
    "no answers": lambda _: b'{"key": "zen"}',
    "answers of another type": lambda _: b'{"key": "zen", "answers": {"Rows(count=7)": 4}}',
    "of another key": lambda text: text.replace(b"zen", b"zan"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_counts_as_none_and_is_replaced(tmp_path: Path, name: str) -> None:
    path = _written(tmp_path).path
    path.write_bytes(BROKEN[name](path.read_bytes()))
    store = AnswerStore(tmp_path, "zen")
    assert str(path) in store.fault
    assert not store.find(Rows(7), [6, 4])
    store.add(Rows(7), 6)
    store.save()
    assert AnswerStore(tmp_path, "zen").find(Rows(7), [6, 4]) == [6]


def test_what_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    first, second = AnswerStore(tmp_path, "zen"), AnswerStore(tmp_path, "zen")
    first.add(Rows(1), 6)
    second.add(Rows(2), 4)
    first.save()
    second.save()
    again = AnswerStore(tmp_path, "zen")
    assert again.find(Rows(1), [6]) and again.find(Rows(2), [4])


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _written(tmp_path)
    before = store.path.read_text()

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    store.add(Rows(9), 6)
    with pytest.raises(KeyboardInterrupt):
        store.save()
    assert [store.path] == list(tmp_path.iterdir())
    assert store.path.read_text() == before and json.loads(before)


def test_a_folder_that_cannot_be_written_is_a_fault_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = AnswerStore(tmp_path / "file" / "below", "zen")
    store.add(Rows(7), 4)
    store.save()
    assert "cannot be written" in store.fault
    assert store.find(Rows(7), [6, 4]) == [4], "for this run it holds"
