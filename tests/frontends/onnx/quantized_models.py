"""Run one operator on quantized tensors, compiled by relaxc and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import relaxc
from tests.frontends.onnx.run_model import run_reference

Inputs = Sequence["np.ndarray | None"]


def single_node(
    op: str,
    inputs: Inputs,
    outputs: Sequence[Any],
    *,
    constant: Sequence[int] = (),
    domain: str = "",
    version: int = 21,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one node, and its feeds.

    Args:
        op: The operator.
        inputs: Its inputs; None for one that is left out.
        outputs: The outputs' element types, as TensorProto numbers.
        constant: Places of the inputs that are initializers; the others are fed.
        domain: The operator's domain.
        version: The version of ai.onnx.
        attributes: The node's attributes.
    """
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(inputs)]
    results = [f"o{place}" for place in range(len(outputs))]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    fed = {
        name: array
        for place, (name, array) in enumerate(zip(names, inputs, strict=True))
        if array is not None and place not in constant
    }
    graph = helper.make_graph(
        [node],
        "single",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in fed.items()
        ],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(results, outputs, strict=True)
        ],
        [numpy_helper.from_array(inputs[place], names[place]) for place in constant],
    )
    opsets = [helper.make_opsetid("", version)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), fed


def run_compiled(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Compile with relaxc and run."""
    results = relaxc.compile(model, threads=1, progress=False)(**feeds)
    return list(results) if isinstance(results, tuple) else [results]


def check(
    op: str,
    inputs: Inputs,
    outputs: Sequence[Any],
    *,
    off_by_one: float = 0.0,
    tolerance: float = 1e-5,
    **options: Any,
) -> None:
    """Assert that one operator gives what ONNX Runtime gives.

    Args:
        op: The operator.
        inputs: Its inputs.
        outputs: The outputs' element types.
        off_by_one: The share of integer elements that may differ by one: where the runtime computes
            in another order of float32 operations than the specification, halves round differently.
        tolerance: Relative and absolute, for floats.
        options: Passed on to `single_node`.
    """
    model, feeds = single_node(op, inputs, outputs, **options)
    expected = run_reference(model, feeds)
    for got, want in zip(run_compiled(model, feeds), expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        if got.dtype.kind in "iu":
            distance = np.abs(got.astype("int64") - want.astype("int64"))
            assert distance.max(initial=0) <= (1 if off_by_one else 0)
            assert (distance > 0).mean() <= off_by_one
        else:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
