"""An ONNX model with float16 in place of float32: weights, inputs, results, casts, constants."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
_LARGEST = float(np.finfo("float16").max)
# Inputs that the operators want in float32, by their places.
_KEPT = {"Resize": (1, 2), "Upsample": (1,)}


def half_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in float16; numbers beyond its range become its largest ones."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    kept = {
        node.input[place]
        for node in graph.node
        for place in _KEPT.get(node.op_type, ())
        if place < len(node.input)
    }
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _convert(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == FLOAT and value.name not in kept:
            value.type.tensor_type.elem_type = HALF
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = HALF
            if attribute.HasField("t") and not kept & set(node.output):
                _convert(attribute.t)
    return made


def _convert(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == FLOAT:
        values = np.clip(numpy_helper.to_array(tensor), -_LARGEST, _LARGEST).astype("float16")
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
