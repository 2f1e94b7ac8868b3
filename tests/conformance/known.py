"""The checked-in list of the cases that do not pass, and what a run changes against it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.run_case import Outcome

PATH = Path(__file__).with_name("not_passing.json")


def read_known(path: Path = PATH) -> dict[str, Outcome]:
    """Return the listed cases by key."""
    if not path.exists():
        return {}
    listed = json.loads(path.read_text())
    return {key: Outcome(verdict, reason) for key, (verdict, reason) in listed.items()}


def write_known(outcomes: Mapping[str, Outcome], path: Path = PATH) -> None:
    """Put what was run into the list: what passes leaves it, what does not is entered.

    Cases that were not run keep their entry.
    """
    write_list(path, {**read_known(path), **outcomes})


def write_list(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write those outcomes that do not pass, one a line in the order of their keys."""
    lines = [
        f"{json.dumps(key)}: {json.dumps([outcome.verdict, outcome.reason])}"
        for key, outcome in sorted(outcomes.items())
        if outcome.verdict != "pass"
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@dataclass(frozen=True)
class Change:
    """A case whose verdict is not the listed one."""

    key: str
    before: str
    after: Outcome

    @property
    def is_regression(self) -> bool:
        """Tell whether it got worse, or fails in another way than the list says."""
        return self.after.verdict != "pass"


def changes(outcomes: Mapping[str, Outcome], known: Mapping[str, Outcome]) -> list[Change]:
    """Return every case whose verdict differs from the list; unlisted cases are to pass."""
    passing = Outcome("pass")
    return [
        Change(key, known.get(key, passing).verdict, outcome)
        for key, outcome in outcomes.items()
        if known.get(key, passing).verdict != outcome.verdict
    ]
