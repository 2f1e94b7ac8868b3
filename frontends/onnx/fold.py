"""Evaluate nodes whose inputs are all known, with ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from frontends.onnx.folded_size import result_elements

# Folding a bigger result would trade a cheap run-time operator for a huge file.
MAX_FOLDED_ELEMENTS = 1 << 26
_GROWING = {"Expand", "Tile", "ConstantOfShape", "Range", "Resize", "Upsample", "Pad", "OneHot"}
_MAX_GROWN_ELEMENTS = 1 << 20

_NOT_FOLDED = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli", "If", "Loop", "Scan", "SequenceMap",
    # Of a negative size the evaluator makes an empty window.
    "HannWindow", "HammingWindow", "BlackmanWindow",
    # What these give or take is no array.
    "SequenceConstruct", "SequenceEmpty", "SequenceAt", "SequenceInsert", "SequenceErase",
    "SequenceLength", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalHasElement",
    "OptionalGetElement",
}  # fmt: skip


def can_fold(node: onnx.NodeProto) -> bool:
    """Tell whether the node is a pure function that the reference evaluator may compute."""
    if node.op_type == "Dropout":
        return False
    return node.domain in ("", "ai.onnx", "ai.onnx.ml") and node.op_type not in _NOT_FOLDED


def fold(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int
) -> list[np.ndarray] | None:
    """Return the node's outputs, or None if they are too big or the evaluator cannot tell.

    Args:
        node: Any node without subgraphs.
        inputs: Its inputs in order; None where an optional one is left out.
        opset: The opset version that the node is written for.
    """
    given = sum(array.size for array in inputs if array is not None)
    grown = result_elements(node, inputs, opset)
    if grown is None and node.op_type in _GROWING:
        grown = _grown_size(node, inputs)
    if given > MAX_FOLDED_ELEMENTS or (grown or 0) > max(given, _MAX_GROWN_ELEMENTS):
        return None
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(inputs)]
    outputs = [f"o{place}" if name else "" for place, name in enumerate(node.output)]
    single = onnx.NodeProto()
    single.CopyFrom(node)
    del single.input[:], single.output[:]
    single.input.extend(names)
    single.output.extend(outputs)
    graph = onnx.GraphProto(name="fold", node=[single])
    for name, array in zip(names, inputs, strict=True):
        if array is not None:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name)
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(onnx.helper.make_opsetid(node.domain, opset))
    if node.domain not in ("", "ai.onnx"):
        model.opset_import.append(onnx.helper.make_opsetid("", 21))
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(model)
            results = iter(evaluator.run(None, feeds))
        vars(evaluator).clear()  # it refers to itself, and a model may have thousands
    except Exception:  # noqa: BLE001 - the evaluator raises anything; a converter takes over then
        return None
    folded = [np.asarray(next(results)) if name else np.zeros(0) for name in outputs]
    return None if any(array.dtype == object for array in folded) else folded


def _grown_size(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None]) -> int:
    """Return a bound of the result's size for operators whose inputs do not bound it."""
    arrays = [array for array in inputs if array is not None]
    if node.op_type == "Range":
        start, limit, delta = (float(np.asarray(array).reshape(-1)[0]) for array in arrays[:3])
        return int(abs((limit - start) / delta)) if delta else 0
    numbers = [array for array in arrays[1:] or arrays if array.dtype.kind in "iuf"]
    size = arrays[0].size if node.op_type != "ConstantOfShape" and arrays else 1
    for array in numbers:
        if array.size <= 16:
            size *= int(max(1.0, float(np.prod(np.maximum(np.abs(array.astype("float64")), 1)))))
    return size
