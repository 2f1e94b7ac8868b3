"""Bound the size of a node's result before anything is computed.

A few bytes can ask for a terabyte: ConstantOfShape, Tile, a product of a column and a row. Folding
such a node would hang or kill the process, so its result is measured by ONNX's shape inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

# Arrays that may be shapes, sizes or axes; inference reads no others.
_MAX_SHAPE_ELEMENTS = 1024


def result_elements(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int
) -> int | None:
    """Return the number of elements of all results together, or None if it is not known.

    Args:
        node: Any node without subgraphs.
        inputs: Its inputs in order; None where an optional one is left out.
        opset: The opset version of the node's domain.
    """
    single = onnx.NodeProto()
    single.CopyFrom(node)
    del single.input[:], single.output[:]
    single.input.extend(f"i{n}" if array is not None else "" for n, array in enumerate(inputs))
    single.output.extend(f"o{n}" if name else "" for n, name in enumerate(node.output))
    graph = onnx.GraphProto(name="measure", node=[single])
    for name, array in zip(single.input, inputs, strict=True):
        if array is None:
            continue
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        if array.size <= _MAX_SHAPE_ELEMENTS:
            graph.initializer.append(numpy_helper.from_array(array, name))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(onnx.helper.make_opsetid(node.domain, opset))
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - the node is malformed; whoever computes it will say so
        return None
    shapes = {value.name: value.type.tensor_type for value in inferred.graph.value_info}
    total = 0
    for name in filter(None, single.output):
        kind = shapes.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
            return None
        total += math.prod(max(dim.dim_value, 0) for dim in kind.shape.dim)
    return total
