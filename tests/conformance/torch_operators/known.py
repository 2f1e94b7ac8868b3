"""The checked-in list of the samples that do not pass, by operator and dtype, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.conformance import known
from tests.conformance.run_case import Outcome

PATH = Path(__file__).with_name("not_passing.json")

# Why samples of an operator do not pass, where the message does not say it.
REASONS = {
    "unique_consecutive": "torch works out a wrong shape for dim=-1: (n, 5) of (5,)",
    "as_strided:partial_views": "the storage around a view is no part of an exported program",
}


def read_known() -> dict[str, Outcome]:
    """Return the listed samples by "operator/dtype/number"."""
    return known.read_known(PATH)


def write_known(outcomes: Mapping[str, Outcome]) -> None:
    """Put what was run into the list; samples that were not run keep their entry."""
    listed = {**read_known(), **outcomes}
    explained = {
        key: replace(outcome, reason=REASONS.get(key.split("/")[0], outcome.reason))
        for key, outcome in listed.items()
    }
    known.write_list(PATH, explained)
