"""ONNX Runtime as the second oracle, without its own optimizations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort


def run_onnx_runtime(
    model: onnx.ModelProto, inputs: Sequence[np.ndarray]
) -> list[np.ndarray] | None:
    """Return the results; None if ONNX Runtime has no kernel for an operator's dtype."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    names = [value.name for value in session.get_inputs()]
    found = session.run(None, dict(zip(names, inputs, strict=True)))
    return [np.asarray(result) for result in found]
