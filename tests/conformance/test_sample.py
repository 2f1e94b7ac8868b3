"""A fixed sample of ONNX's conformance cases against the list of those that do not pass."""

from __future__ import annotations

from tests.conformance.cases import SUITES, load_cases
from tests.conformance.known import changes, read_known
from tests.conformance.workers import run_cases

STEP = 20  # about 100 cases; `make conformance` runs all of them


def test_no_case_of_the_sample_is_worse_than_listed() -> None:
    suites = tuple(suite for suite in SUITES if suite != "light")  # those take minutes
    outcomes = run_cases(load_cases(suites=suites)[::STEP], workers=2, seconds=120)
    known = read_known()
    worse = [
        f"{change.key}: {change.before} -> {change.after.verdict}: {change.after.reason}"
        for change in changes(outcomes, known)
        if change.is_regression
    ]
    assert not worse, "\n".join(worse)
    assert len(outcomes) > 90
    assert sum(outcome.verdict == "pass" for outcome in outcomes.values()) > len(outcomes) // 2
