"""A fixed sample of torch's own samples against the list of those that do not pass."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch.testing._internal imports it

from tests.conformance.known import changes  # noqa: E402
from tests.conformance.run_case import Outcome  # noqa: E402
from tests.conformance.torch_operators import run_samples  # noqa: E402
from tests.conformance.torch_operators.__main__ import run_jobs  # noqa: E402
from tests.conformance.torch_operators.core_set import op_infos, uncovered  # noqa: E402
from tests.conformance.torch_operators.known import read_known  # noqa: E402
from tests.conformance.torch_operators.run_samples import Job, Sample  # noqa: E402

SAMPLE = [
    Job("add", ("float16", "int64", "bool"), most=3),
    Job("fft.rfft", ("float32", "int64"), most=2),
    Job("index_put", ("float32", "bool"), most=2),
    Job("nn.functional.conv2d", ("float32", "bfloat16"), most=2),
    Job("nonzero", ("bool",), most=3),
    Job("scatter_reduce:mean", ("float64",), most=3),
    Job("sort", ("float32", "int64"), most=2),
    Job("var", ("float64", "float16"), most=3),
]


def test_no_operator_of_the_sample_is_worse_than_listed() -> None:
    outcomes = run_jobs(SAMPLE, 1, 300)
    worse = [
        f"{change.key}: {change.before} -> {change.after.verdict}: {change.after.reason}"
        for change in changes(outcomes, read_known())
        if change.is_regression
    ]
    assert not worse, "\n".join(worse)
    assert sum(outcome.verdict == "pass" for outcome in outcomes.values()) > 30


def test_most_core_operators_have_samples() -> None:
    assert len(op_infos()) > 170
    assert len(uncovered()) < 12, uncovered()


def test_a_worse_outcome_is_a_regression_against_the_list() -> None:
    listed = read_known()
    assert listed, "the list is checked in"
    key, outcome = next(iter(listed.items()))
    assert not changes({key: outcome}, listed)
    assert all(c.is_regression for c in changes({"add/float32/0": Outcome("wrong")}, listed))


def test_equal_elements_may_come_in_any_order() -> None:
    x = torch.tensor([[2.0, 1.0, 2.0]])
    values = torch.tensor([[1.0, 2.0, 2.0]])
    assert run_samples.orders(x, values, torch.tensor([[1, 2, 0]]))
    assert not run_samples.orders(x, values, torch.tensor([[1, 2, 2]]))
    assert not run_samples.orders(x, values, torch.tensor([[0, 1, 2]]))


def test_half_precision_is_judged_by_float64() -> None:
    x = torch.tensor([1.0, 3.0], dtype=torch.float16)
    rough = Sample("", lambda t: [t / 3], [x], [x / 3 + 0.25])
    assert run_samples.is_as_exact(rough, 0, x / 3)
    assert not run_samples.is_as_exact(rough, 0, x / 3 + 0.5)
