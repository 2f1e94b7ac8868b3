"""The checked-in list of the samples that do not pass, by operator and dtype, with reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.run_case import Outcome

PATH = Path(__file__).with_name("not_passing.json")


def read_known(path: Path = PATH) -> dict[str, Outcome]:
    """Return the listed samples by "operator/dtype/number"."""
    if not path.exists():
        return {}
    listed = json.loads(path.read_text())
    return {key: Outcome(verdict, reason) for key, (verdict, reason) in listed.items()}


def write_known(outcomes: Mapping[str, Outcome], path: Path = PATH) -> None:
    """Put what was run into the list; samples that were not run keep their entry."""
    listed = {**read_known(path), **outcomes}
    lines = [
        f"{json.dumps(key)}: {json.dumps([outcome.verdict, outcome.reason])}"
        for key, outcome in sorted(listed.items())
        if outcome.verdict != "pass"
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
