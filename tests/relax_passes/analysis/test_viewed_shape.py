"""How a broadcast operand looks in another view."""

from __future__ import annotations

import pytest
from tvm import tirx

from relax_passes.analysis.viewed_shape import viewed_shape

N, M = (tirx.Var(name, "int64") for name in "nm")

CASES = [
    # operand, shape, view, what it becomes
    ((8,), (2, 3, 8), (6, 8), [8]),
    ((1, 8), (2, 3, 8), (6, 8), [1, 8]),
    ((2, 3, 1), (2, 3, 8), (6, 8), [6, 1]),
    ((2, 3, 8), (2, 3, 8), (6, 8), [6, 8]),
    ((), (2, 3, 8), (6, 8), []),
    ((1, 1, 1), (2, 3, 8), (6, 8), [1, 1]),
    ((3, 8), (2, 3, 8), (6, 8), None),
    ((2, 1, 1), (2, 3, 8), (6, 8), None),
    ((8, 1, 1), (2, 8, 4, 4), (2, 8, 16), [8, 1]),
    ((4, 4), (2, 8, 4, 4), (2, 8, 16), [16]),
    ((4,), (2, 8, 4, 4), (2, 8, 16), None),
    ((6, 1), (6, 8), (2, 3, 2, 4), [2, 3, 1, 1]),
    ((1, 6, 1, 8), (1, 6, 1, 8), (6, 8), [6, 8]),
    ((6, 8), (6, 8), (1, 6, 1, 8), [6, 1, 8]),
    ((N, 8), (N, 8), (N, 2, 4), [N, 2, 4]),
    ((8,), (N, 8), (N, 2, 4), [2, 4]),
    ((N, 1), (N, 8), (N, 2, 4), [N, 1, 1]),
    ((8,), (N, M, 8), (N * M, 8), None),  # sizes that are not known to agree
    ((12,), (4, 12), (6, 8), None),  # one group of both axes
    ((4, 12), (4, 12), (6, 8), [6, 8]),
    ((2, 4, 12), (4, 12), (6, 8), None),  # broadcasts to no such shape
]


@pytest.mark.parametrize(("operand", "shape", "view", "expected"), CASES)
def test_viewed_shape(operand, shape, view, expected) -> None:
    found = viewed_shape(operand, shape, view)
    assert (None if found is None else list(map(str, found))) == (
        None if expected is None else list(map(str, expected))
    )
