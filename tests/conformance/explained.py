"""Cases that refuse the exact result, and the arithmetic that proves it of each.

ONNX makes the expected numbers of some cases with NumPy while the cases are loaded. Where NumPy
computes them in the case's own precision, their rounding errors may exceed the case's tolerance:
then the exact result fails too, and which result passes depends on the NumPy that is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from tests.conformance.compare import difference

DFT = (
    "the expected numbers carry the rounding errors of a float32 transform: where the exact "
    "inverse of the recorded input is 0 they are 1.9e-7, beyond the tolerance of 1e-7"
)
EXPLAINED = {
    "node/dft_inverse": DFT,
    "node/dft_inverse_opset19": DFT,
}


def exact_outputs(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Return a float32 model's outputs by ONNX's reference evaluator, computed in float64."""
    feeds = {
        value.name: given.astype("float64") if given.dtype == np.float32 else given
        for value, given in zip(model.graph.input, inputs, strict=True)
    }
    return list(ReferenceEvaluator(model).run(None, feeds))


def refuses_exact_result(
    model: onnx.ModelProto,
    inputs: Sequence[Any],
    expected: Sequence[Any],
    actual: Sequence[Any],
    rtol: float,
    atol: float,
) -> bool:
    """Tell whether the exact result differs from `expected` too, and `actual` agrees with it.

    Both comparisons are made with the case's own tolerances, after rounding the exact result to
    float32.
    """
    exact = [output.astype("float32") for output in exact_outputs(model, inputs)]
    refused = difference(expected, exact, rtol, atol)
    return bool(refused) and not difference(exact, actual, rtol, atol)
