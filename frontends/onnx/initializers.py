"""Read a graph's initializers, dense and sparse, as known values."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from frontends.errors import InvalidModel
from frontends.onnx.value import Value


def read_initializers(graph: onnx.GraphProto, file: str) -> dict[str, Value]:
    """Return the initializers; one that is also an input is that input's default."""
    constants: dict[str, Value] = {}
    for tensor in graph.initializer:
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
        try:
            constants[name] = Value.constant(name, _densify(sparse))
        except (ValueError, IndexError, TypeError) as error:
            raise InvalidModel(
                f"the sparse initializer's indices do not fit its shape: {error}",
                tensor=name,
                file=file,
            ) from error
    return constants


def _densify(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """Return a sparse initializer (COO, linear or per-axis indices) as a dense array.

    Raises:
        ValueError, IndexError: The indices do not fit the shape.
    """
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    if indices.dtype != np.int64 or indices.ndim not in (1, 2) or len(indices) != len(values):
        raise ValueError(
            f"{len(values)} values have indices of type {indices.dtype} and shape {indices.shape}"
        )
    dense = np.zeros(shape, dtype=values.dtype)
    if indices.ndim == 1:
        flat = indices
    else:
        flat = np.ravel_multi_index(tuple(indices.T), shape)
    if flat.size and flat.min() < 0:
        raise IndexError("an index is negative")
    dense.reshape(-1)[flat] = values
    return dense
