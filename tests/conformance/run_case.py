"""Run one case through the backend and judge it as ONNX's own runner does."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from tests.conformance.cases import Case, read_case
from tests.conformance.compare import difference, one_line
from tests.conformance.explained import EXPLAINED, refuses_exact_result

VERDICTS = ("pass", "random", "inexact", "wrong", "error", "unsupported")

# Operators whose result the specification leaves to a random generator of the backend's choice.
_DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
            "RandomUniformLike"}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    `verdict` is one of `VERDICTS`: "random" means that shapes and dtypes are right and the numbers
    are one draw of a generator that the specification does not fix; "inexact" that the case refuses
    the exact result, which relaxc gave (`explained.py`); "unsupported" that relaxc said so while
    importing; "error" everything else that ended without numbers.
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
            if problem and case.key in EXPLAINED:
                if refuses_exact_result(model, inputs, expected, outputs, *case.tolerances):
                    return Outcome("inexact", EXPLAINED[case.key])
            if problem:
                return Outcome("wrong", problem)
    except UnsupportedOperator as fault:
        return Outcome("unsupported", one_line(fault))
    except Exception as fault:  # noqa: BLE001 - whatever is raised is this case's outcome
        return Outcome("error", f"{type(fault).__name__}: {one_line(fault)}")
    if drawn:
        return Outcome("random", "the expected numbers are one draw of another generator")
    return Outcome("pass")


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
