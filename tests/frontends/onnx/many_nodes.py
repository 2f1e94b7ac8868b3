"""Compile several nodes over the same inputs as one model: one compilation checks many variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference


@dataclass(frozen=True)
class Variant:
    """One node: its operator, the names of its inputs, its attributes, how many outputs."""

    op: str
    inputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


def variant(op: str, inputs: str, outputs: int = 1, **attributes: Any) -> Variant:
    """Return a variant; `inputs` are names with blanks between, "-" for one left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return Variant(op, names, attributes, outputs)


def model_of(
    variants: Sequence[Variant],
    feeds: Mapping[str, np.ndarray],
    constants: Sequence[str] = (),
    symbolic: Mapping[str, Sequence[int | str]] | None = None,
    opset: int = 22,
) -> onnx.ModelProto:
    """Return a model with one node a variant, every output of which is an output.

    Args:
        variants: The nodes.
        feeds: Example inputs.
        constants: Inputs that are initializers.
        symbolic: Shapes of inputs with names for sizes known only at run time.
        opset: Version of the default domain.
    """
    nodes, names = [], []
    for place, item in enumerate(variants):
        outputs = [f"y{place}_{number}" for number in range(item.outputs)]
        nodes.append(helper.make_node(item.op, list(item.inputs), outputs, **item.attributes))
        names += outputs
    shapes = symbolic or {}
    given = {
        name: (array.dtype, shapes.get(name, array.shape))
        for name, array in feeds.items()
        if name not in constants
    }
    fixed = {name: feeds[name] for name in constants}
    model = make_model(nodes, given, names, fixed, opset=opset)
    for value in model.graph.output:  # whatever the operator gives
        value.type.Clear()
    return model


def check_variants(
    variants: Sequence[Variant],
    feeds: Mapping[str, np.ndarray],
    *,
    by: str = "ort",
    tolerance: float = 1e-5,
    **options: Any,
) -> None:
    """Assert that shapes, dtypes and numbers are those of ONNX Runtime, or of "reference"."""
    model = model_of(variants, feeds, **options)
    given = {value.name: feeds[value.name] for value in model.graph.input}
    if by == "ort":
        expected = run_reference(model, given)
    else:
        expected = ReferenceEvaluator(model).run(None, given)
    compiled = relaxc.compile(model, threads=1, progress=False)
    results = compiled(**{spec.name: given[spec.name] for spec in compiled.inputs})
    results = [results] if len(model.graph.output) == 1 else results
    owners = [item for item in variants for _ in range(item.outputs)]
    for owner, got, want in zip(owners, results, expected, strict=True):
        have, title = np.asarray(got), f"{owner.op} {dict(owner.attributes)}"
        want = np.asarray(want)
        assert (have.shape, have.dtype) == (want.shape, want.dtype), title
        np.testing.assert_allclose(
            have.astype("float64"), want.astype("float64"), tolerance, tolerance, err_msg=title
        )
