"""Compile one node through the whole pipeline and compare with onnx's reference or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference

Arrays = Sequence[np.ndarray | None]


def node_model(
    op: str,
    inputs: Arrays,
    outputs: int,
    constants: Sequence[int] = (),
    *,
    opset: int = 18,
    domain: str = "",
    symbolic: Mapping[int, Sequence[int | str]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op: The operator.
        inputs: Example inputs; None where an optional one is left out.
        outputs: How many outputs.
        constants: The places of inputs that are initializers.
        opset: Of the default domain, and version 1 of any other `domain`.
        domain: The operator's.
        symbolic: Shapes of inputs by place, where names stand for sizes known at run time.
        attributes: Of the node.
    """
    names = ["" if array is None else f"x{place}" for place, array in enumerate(inputs)]
    results = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = {
        name: (array.dtype, (symbolic or {}).get(place, array.shape))
        for place, (name, array) in enumerate(zip(names, inputs, strict=True))
        if array is not None and place not in constants
    }
    fixed = {f"x{place}": inputs[place] for place in constants}
    model = make_model(
        [node], given, results, fixed, opset=opset, domains={domain: 1} if domain else None
    )
    for value in model.graph.output:  # whatever the operator gives
        value.type.Clear()
    return model


def run_compiled(model: onnx.ModelProto, inputs: Arrays, **options: Any) -> list[np.ndarray]:
    """Compile for one thread and run."""
    compiled = relaxc.compile(model, threads=1, progress=False, **options)
    feeds = {spec.name: inputs[int(spec.name[1:])] for spec in compiled.inputs}
    results = compiled(**feeds)
    return [results] if len(model.graph.output) == 1 else list(results)


def check_node(
    op: str,
    *inputs: np.ndarray | None,
    outputs: int = 1,
    tolerance: float = 1e-5,
    by: str = "reference",
    **options: Any,
) -> list[np.ndarray]:
    """Assert that shapes, dtypes and numbers are those of onnx's reference, or of "ort"."""
    model = node_model(op, inputs, outputs, **options)
    feeds = {spec.name: inputs[int(spec.name[1:])] for spec in model.graph.input}
    if by == "ort":
        expected = run_reference(model, feeds)
    else:
        expected = ReferenceEvaluator(model).run(None, feeds)
    got = run_compiled(model, inputs)
    for have, want in zip(got, expected, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(
            have.astype("float64"), want.astype("float64"), rtol=tolerance, atol=tolerance
        )
    return got
