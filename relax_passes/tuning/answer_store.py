"""What was measured, on disk: one JSON file for each processor and version.

A file maps the `repr` of a question to that of its answer. What cannot be read, or answers what is
no option any more, counts as not measured. Files are written beside their place and renamed, so
they are whole or absent; of two processes that write at once, one loses what it measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relax_passes.whole_file import write_whole
from tir_schedules.questions import Question


class AnswerStore:
    """The answers measured for one processor, number of threads and version of the compiler."""

    def __init__(self, folder: Path, key: str) -> None:
        """Read what the folder holds for a key; `fault` says why there is nothing, "" if so.

        Args:
            folder: Where files are kept; it need not exist.
            key: What answers hold for: processor, threads, versions.
        """
        self.path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self.fault = ""
        self._key = key
        self._answers: dict[str, str] = {}
        try:
            self._answers = _parsed(self.path.read_text(), key)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as fault:
            self.fault = f"{self.path} cannot be read ({fault}): measured anew"

    def find(self, question: Question, options: Sequence[Any]) -> Sequence[Any]:
        """Return the answer to a question as a list of one, or none."""
        kept = self._answers.get(repr(question))
        return [option for option in options if repr(option) == kept][:1]

    def add(self, question: Question, answer: Any) -> None:
        """Take an answer; `save` writes it."""
        self._answers[repr(question)] = repr(answer)

    def save(self) -> None:
        """Write all answers, those that other processes wrote since included.

        A folder that cannot be written leaves `fault`: the answers then hold for this run alone.
        """
        try:
            try:
                others = _parsed(self.path.read_text(), self._key)
            except (OSError, ValueError):
                others = {}
            document = {"key": self._key, "answers": {**others, **self._answers}}
            write_whole(json.dumps(document, indent=1, sort_keys=True), self.path)
        except OSError as fault:
            self.fault = f"{self.path} cannot be written ({fault.strerror or fault})"


def _parsed(text: str, key: str) -> dict[str, str]:
    """Return the answers of a file.

    Raises:
        ValueError: If the text is not what `save` writes, or is for another key.
    """
    document = json.loads(text)
    answers = document.get("answers") if isinstance(document, dict) else None
    if not isinstance(answers, dict) or document.get("key") != key:
        raise ValueError("not a file of answers for this processor and version")
    if not all(isinstance(value, str) for value in answers.values()):
        raise ValueError("an answer is no text")
    return answers
