"""Check that the tensors in a model hold the data that their shapes declare.

Nothing is allocated here, so a file of a hundred bytes cannot claim a tensor of a terabyte: what
passes is at most as large as the data that is already in memory.
"""

from __future__ import annotations

import math

import onnx
from onnx.external_data_helper import uses_external_data

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.subgraphs import ModelParts

# Sparse tensors are made dense; a bigger one would take memory that its file does not justify.
MAX_DENSE_ELEMENTS = 1 << 26

_TYPES = onnx.TensorProto.DataType
_SUB_BYTE_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


def check_tensors(parts: ModelParts, file: str) -> None:
    """Check type, dimensions and amount of data of every tensor in a model.

    Raises:
        InvalidModel: A tensor has an unknown type, a negative dimension, or other than the
            declared amount of data; the indices of a sparse one are not ascending or not in it.
        UnsupportedOperator: A sparse tensor is too large to be made dense.
    """
    for tensor in [*parts.weights, *parts.tensors]:
        if not uses_external_data(tensor):  # what is outside of the model is checked there
            _check_data(tensor, file)
    for sparse in parts.sparse_tensors:
        _check_sparse(sparse, file)


def _check_sparse(sparse: onnx.SparseTensorProto, file: str) -> None:
    name = sparse.values.name
    _check_data(sparse.values, file)
    _check_data(sparse.indices, file)
    if any(dim < 0 for dim in sparse.dims):
        raise InvalidModel("a dimension is negative", tensor=name, file=file)
    if math.prod(sparse.dims) > MAX_DENSE_ELEMENTS:
        raise UnsupportedOperator(
            f"a sparse tensor that takes {math.prod(sparse.dims)} elements when dense",
            tensor=name,
            file=file,
        )
    named = onnx.SparseTensorProto()  # the checker insists on a name, which an attribute needs not
    named.CopyFrom(sparse)
    named.values.name = name or "values"
    try:
        onnx.checker.check_sparse_tensor(named)
    except onnx.checker.ValidationError as error:
        raise InvalidModel(
            f"a sparse tensor is malformed: {str(error).strip()}", tensor=name, file=file
        ) from error


def byte_count(tensor: onnx.TensorProto, file: str) -> int:
    """Return how many bytes the tensor's raw data takes.

    Raises:
        InvalidModel: Its type is unknown or has no raw data, or a dimension is negative.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise InvalidModel("strings cannot be raw data", tensor=tensor.name, file=file)
    return -(-_element_count(tensor, file) * _bits(tensor, file) // 8)


def _element_count(tensor: onnx.TensorProto, file: str) -> int:
    if any(dim < 0 for dim in tensor.dims):
        raise InvalidModel(
            f"a dimension is negative: {list(tensor.dims)}", tensor=tensor.name, file=file
        )
    return math.prod(tensor.dims)


def _bits(tensor: onnx.TensorProto, file: str) -> int:
    kind = tensor.data_type
    if kind not in _TYPES.values() or kind == onnx.TensorProto.UNDEFINED:
        raise InvalidModel(f"unknown element type {kind}", tensor=tensor.name, file=file)
    name = _TYPES.Name(kind)
    return _SUB_BYTE_BITS.get(name) or onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize * 8


def _check_data(tensor: onnx.TensorProto, file: str) -> None:
    count, bits = _element_count(tensor, file), _bits(tensor, file)
    kind = tensor.data_type
    if tensor.HasField("raw_data"):
        have, need, unit = len(tensor.raw_data), byte_count(tensor, file), "bytes"
    else:
        field = onnx.helper.tensor_dtype_to_field(kind)
        have, need, unit = len(getattr(tensor, field)), count, "elements"
        if kind in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            need *= 2
        elif bits < 8:
            need = -(-count * bits // 8)
    if have != need:
        raise InvalidModel(
            f"its shape {list(tensor.dims)} takes {need} {unit}, it has {have}",
            tensor=tensor.name,
            file=file,
        )
