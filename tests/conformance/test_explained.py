"""Cases that do not pass because they refuse even the exact result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.cases import Case, load_cases, read_case
from tests.conformance.compare import difference
from tests.conformance.explained import EXPLAINED, exact_outputs, refuses_exact_result
from tests.conformance.known import read_known
from tests.conformance.run_case import Outcome, run_case


def case_of(key: str) -> Case:
    (case,) = load_cases(f"^{key}$", ("node",))
    return case


@pytest.mark.parametrize("key", sorted(EXPLAINED))
def test_the_exact_inverse_transform_is_refused_and_ours_agrees_with_it(key: str) -> None:
    case = case_of(key)
    model, [(inputs, (expected,))] = read_case(case)
    x = inputs[0].astype("float64")
    # The sum of the specification, in float64: y[n] = 1/N sum_k x[k] exp(2 pi i n k / N).
    size = x.shape[1]
    turns = np.arange(size)[:, None] * np.arange(size) % size
    kernel = np.exp(2j * np.pi * turns / size) / size
    inverse = np.einsum("nk,bkc->bnc", kernel, x[..., 0] + 1j * x[..., 1])
    exact = np.stack([inverse.real, inverse.imag], -1)
    np.testing.assert_allclose(exact_outputs(model, inputs)[0], exact, atol=1e-13)

    rounded = exact.astype("float32")
    assert difference([expected], [rounded], *case.tolerances)
    assert refuses_exact_result(model, inputs, [expected], [rounded], *case.tolerances)
    assert run_case(case) == Outcome("inexact", EXPLAINED[key])

    # Neither a wrong result nor a case that takes the exact one is excused.
    wrong = rounded + np.float32(1e-5)
    assert not refuses_exact_result(model, inputs, [expected], [wrong], *case.tolerances)
    assert not refuses_exact_result(model, inputs, [rounded], [wrong], *case.tolerances)


def test_what_is_explained_is_listed() -> None:
    known = read_known()
    assert {key: known[key] for key in EXPLAINED} == {
        key: Outcome("inexact", reason) for key, reason in EXPLAINED.items()
    }
