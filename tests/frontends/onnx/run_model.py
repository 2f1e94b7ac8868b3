"""Build small ONNX models and run them through the importer and through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from frontends.onnx import import_onnx
from tests.frontends.plain_build import plainly_built

Feeds = Mapping[str, np.ndarray]


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Sequence[str],
    initializers: Feeds | None = None,
    *,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    output_types: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a model; inputs are given as name -> (dtype, shape)."""
    kinds = {
        name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for name, (dtype, _) in inputs.items()
    }
    types = output_types or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, kinds[name], shape)
            for name, (_, shape) in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), None)
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(name, version) for name, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_imported(model: Any, feeds: Feeds, **options: Any) -> list[np.ndarray]:
    """Import, build with TVM's default pipeline, run."""
    return built(model, **options)(feeds)


def built(model: Any, **options: Any) -> Callable[[Feeds], list[np.ndarray]]:
    """Import, build with TVM's default pipeline; return what runs it."""
    imported = import_onnx(model, **options)
    machine = relax.VirtualMachine(plainly_built(imported.module), tvm.cpu())

    def run(feeds: Feeds) -> list[np.ndarray]:
        arguments = [
            tvm.runtime.tensor(np.asarray(feeds[spec.name], order="C")) for spec in imported.inputs
        ]
        results = machine["main"](*arguments)
        if len(imported.outputs) == 1:
            results = [results]
        return [result.numpy() for result in results]

    return run


def run_reference(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    """Run by ONNX Runtime without optimizations."""
    return reference_session(model)(feeds)


def reference_session(model: onnx.ModelProto) -> Callable[[Feeds], list[np.ndarray]]:
    """Return what runs a model by ONNX Runtime without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: session.run(None, dict(feeds))


def assert_like_reference(
    model: onnx.ModelProto, feeds: Feeds, *, tolerance: float = 1e-5, **options: Any
) -> None:
    """Assert that shapes, dtypes and numbers equal ONNX Runtime's."""
    expected = run_reference(model, feeds)
    for got, want in zip(run_imported(model, feeds, **options), expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
