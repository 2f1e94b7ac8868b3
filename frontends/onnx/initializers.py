"""Read a graph's initializers, dense and sparse, as known values."""

from __future__ import annotations

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from frontends.errors import InvalidModel
from frontends.onnx.external_data import read_weight
from frontends.onnx.sparse_tensors import dense_array
from frontends.onnx.value import Value


def read_initializers(graph: onnx.GraphProto, file: str) -> dict[str, Value]:
    """Return the initializers; one that is also an input is that input's default."""
    constants: dict[str, Value] = {}
    for tensor in graph.initializer:
        if uses_external_data(tensor):
            constants[tensor.name] = read_weight(tensor, file)
            continue
        try:
            constants[tensor.name] = Value.constant(tensor.name, numpy_helper.to_array(tensor))
        except Exception as error:  # numpy_helper raises any type on malformed data
            raise InvalidModel(
                f"the initializer's data does not fit its shape and type: {error}",
                tensor=tensor.name,
                file=file,
            ) from error
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        constants[name] = Value.constant(name, dense_array(sparse))
    return constants
