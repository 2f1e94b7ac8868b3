"""A fixed sample of torch's own samples against the list of those that do not pass."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch.testing._internal imports it

from tests.conformance.known import changes  # noqa: E402
from tests.conformance.torch_operators.__main__ import run_jobs  # noqa: E402
from tests.conformance.torch_operators.core_set import op_infos, uncovered  # noqa: E402
from tests.conformance.torch_operators.known import read_known  # noqa: E402
from tests.conformance.torch_operators.run_samples import Job  # noqa: E402

SAMPLE = [
    ("add", "int64"),
    ("index_put", "float32"),
    ("nn.functional.conv2d", "float32"),
    ("nonzero", "bool"),
    ("scatter_reduce:mean", "float64"),
    ("sort", "float32"),
    ("var", "float64"),
]


def test_no_operator_of_the_sample_is_worse_than_listed() -> None:
    outcomes = run_jobs([Job(key, dtype, most=4) for key, dtype in SAMPLE], 2, 120)
    worse = [
        f"{change.key}: {change.before} -> {change.after.verdict}: {change.after.reason}"
        for change in changes(outcomes, read_known())
        if change.is_regression
    ]
    assert not worse, "\n".join(worse)
    assert sum(outcome.verdict == "pass" for outcome in outcomes.values()) > 15


def test_most_core_operators_have_samples() -> None:
    assert len(op_infos()) > 170
    assert len(uncovered()) < 12, uncovered()
