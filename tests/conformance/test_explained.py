"""Cases that do not pass because they refuse even the exact result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.cases import Case, load_cases, read_case
from tests.conformance.explained import EXPLAINED
from tests.conformance.known import read_known
from tests.conformance.run_case import difference


def case_of(key: str) -> Case:
    (case,) = load_cases(f"^{key}$", ("node",))
    return case


@pytest.mark.parametrize("key", ["node/dft_inverse", "node/dft_inverse_opset19"])
def test_the_exact_inverse_transform_is_refused_too(key: str) -> None:
    case = case_of(key)
    _, [(inputs, (expected,))] = read_case(case)
    x = inputs[0].astype("float64")
    inverse = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=1)
    exact = np.stack([inverse.real, inverse.imag], -1)
    assert difference([expected], [exact.astype("float32")], *case.tolerances)


def test_what_is_explained_is_listed() -> None:
    known = read_known()
    assert {key: known[key].reason for key in EXPLAINED} == EXPLAINED
