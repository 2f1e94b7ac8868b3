"""Who is right: an engine that shares no code with this compiler runs the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]


def references(source: Any) -> dict[str, Callable[[], Run]]:
    """Return the engines that may run `source`, the most trusted first.

    Each value makes a function from inputs by name to outputs in order; it raises whatever its
    engine raises where that is not installed or refuses the model.
    """
    home = type(source).__module__.split(".")[0]
    if isinstance(source, str | os.PathLike) or home == "onnx":
        return {
            "ONNX Runtime": lambda: _onnxruntime(source),
            "onnx.reference": lambda: _onnx_reference(source),
        }
    if hasattr(source, "forward") or hasattr(source, "module"):
        return {"PyTorch": lambda: _torch(source)}
    return {}


def _onnxruntime(source: Any) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its own rewrites may not be part of what is judged.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    is_path = isinstance(source, str | os.PathLike)
    session = onnxruntime.InferenceSession(
        str(Path(source)) if is_path else source.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    return lambda feeds: [np.asarray(value) for value in session.run(None, dict(feeds))]


def _onnx_reference(source: Any) -> Run:
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(source) if isinstance(source, str | os.PathLike) else source
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: [np.asarray(value) for value in evaluator.run(None, dict(feeds))]


def _torch(source: Any) -> Run:
    import torch

    module = source if hasattr(source, "forward") else source.module()

    def run(feeds: Mapping[str, np.ndarray]) -> Arrays:
        with torch.no_grad():
            result = module(*(torch.from_numpy(value) for value in feeds.values()))
        return [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves(result)]

    return run
