"""The checked-in list of the samples that do not pass, by operator and dtype, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.conformance import known
from tests.conformance.run_case import Outcome

PATH = Path(__file__).with_name("not_passing.json")

# Operators none of whose samples relaxc takes, or not those that it says are unsupported.
UNSUPPORTED = {
    "as_strided:partial_views": "the storage beyond a view is no part of an exported program",
    "as_strided": "a view beyond the elements of its operand",
    "fft.irfft": "complex numbers have no type in TVM",
    "fft.rfft": "complex numbers have no type in TVM",
    "item": "a float that only the data decides; integers are read as sizes",
    "nn.functional.scaled_dot_product_attention": "dropout inside attention: training only",
}


def read_known() -> dict[str, Outcome]:
    """Return the listed samples by "operator/dtype/number"."""
    return known.read_known(PATH)


def unexpected(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return outcomes without those that `UNSUPPORTED` gives a reason for."""
    return {
        key: outcome
        for key, outcome in outcomes.items()
        if outcome.verdict != "unsupported" or key.split("/")[0] not in UNSUPPORTED
    }


def write_known(outcomes: Mapping[str, Outcome]) -> None:
    """Put what was run into the list; samples that were not run keep their entry."""
    known.write_list(PATH, unexpected({**read_known(), **outcomes}))
