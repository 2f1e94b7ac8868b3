"""Sparse tensors, which operators take as the dense ones they stand for."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper


def dense_array(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """Return a checked sparse tensor as a dense array.

    Its values (NNZ,) stand at int64 indices, which are linear (NNZ,) or one per axis (NNZ, rank);
    the other elements are 0, or empty strings (`SparseTensorProto` in onnx.proto).
    """
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    is_text = values.dtype == object
    dense = np.full(shape, "", dtype=object) if is_text else np.zeros(shape, dtype=values.dtype)
    at = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
    dense.reshape(-1)[at] = values
    return dense
