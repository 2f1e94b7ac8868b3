"""Run one case through the backend and judge it as ONNX's own runner does."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.runner import Runner

from tests.conformance.cases import Case, read_case

VERDICTS = ("pass", "random", "wrong", "error", "unsupported")

# Operators whose result the specification leaves to a random generator of the backend's choice.
_DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
            "RandomUniformLike"}  # fmt: skip

_LONGEST_REASON = 240


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    `verdict` is one of `VERDICTS`: "random" means that shapes and dtypes are right and the numbers
    are one draw of a generator that the specification does not fix; "unsupported" that relaxc said
    so while importing; "error" everything else that ended without numbers.
    """

    verdict: str
    reason: str = ""


def run_case(case: Case) -> Outcome:
    """Compile and run a case, and compare every output of every data set."""
    from relaxc.errors import UnsupportedOperator
    from tests.conformance.backend import RelaxcBackend

    model, data_sets = read_case(case)
    try:
        compiled = RelaxcBackend.prepare(model)
        drawn = False
        for inputs, expected in data_sets:
            outputs = compiled.run(inputs)
            problem = difference(expected, outputs, *case.tolerances)
            if problem and draws(model):
                drawn = True
                problem = difference(expected, outputs, *case.tolerances, drawn)
            if problem:
                return Outcome("wrong", problem)
    except UnsupportedOperator as fault:
        return Outcome("unsupported", one_line(fault))
    except Exception as fault:  # noqa: BLE001 - whatever is raised is this case's outcome
        return Outcome("error", f"{type(fault).__name__}: {one_line(fault)}")
    if drawn:
        return Outcome("random", "the expected numbers are one draw of another generator")
    return Outcome("pass")


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


def draws(model: onnx.ModelProto) -> bool:
    """Tell whether a model's numbers depend on a random generator."""
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for function in (model.graph, *model.functions):
        for node in function.node:
            if node.op_type in _DRAWING:
                return True
            # Training mode is an input from opset 12 on; before that dropout was inference only.
            if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
                if node.input[2] not in known:
                    return True
    return False


def one_line(fault: Exception) -> str:
    """Return an error's message without line breaks, cut where it is long."""
    text = " ".join(str(fault).split())
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
