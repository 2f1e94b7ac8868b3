"""Compare a case's outputs with the expected ones as ONNX's own runner does."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
from onnx.backend.test.runner import Runner

_LONGEST_REASON = 240


def difference(expected: Any, actual: Any, rtol: float, atol: float, drawn: bool = False) -> str:
    """Return what differs between two lists of outputs, "" if nothing does.

    Args:
        expected: The case's outputs: arrays, lists of arrays, or None for an absent optional.
        actual: What the backend returned.
        rtol: Relative tolerance of the case.
        atol: Absolute tolerance of the case.
        drawn: Compare shapes and dtypes only.
    """
    if len(expected) != len(actual):
        return f"{len(actual)} outputs, not {len(expected)}"
    for place, (want, have) in enumerate(zip(expected, actual, strict=True)):
        if problem := _difference(want, have, rtol, atol, drawn):
            return f"output {place}: {problem}"
    return ""


def _difference(want: Any, have: Any, rtol: float, atol: float, drawn: bool) -> str:
    if want is None or have is None:
        return "" if want is have else f"{type(have).__name__}, not {type(want).__name__}"
    if isinstance(want, list | tuple):
        if not isinstance(have, list | tuple):
            return f"{type(have).__name__}, not a sequence"
        return difference(want, have, rtol, atol, drawn)
    want, have = np.asarray(want), np.asarray(have)
    if drawn:
        same = (want.shape, want.dtype) == (have.shape, have.dtype)
        return "" if same else f"{have.dtype}{have.shape}, not {want.dtype}{want.shape}"
    try:
        with np.errstate(all="ignore"), contextlib.suppress(StopIteration):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                Runner.assert_similar_outputs([want], [have], rtol, atol)
    except (AssertionError, TypeError, ValueError) as fault:
        return one_line(fault)
    return ""


def one_line(fault: Exception) -> str:
    """Return an error's message without line breaks, cut where it is long."""
    text = " ".join(str(fault).split())
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
