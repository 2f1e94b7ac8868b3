"""Read and make Relax constants without copies that are not needed."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax


def has_numpy_type(constant: tvm.ir.GenericConst) -> bool:
    """Tell whether a constant is a tensor whose elements NumPy has a type for."""
    value = constant.value
    return isinstance(value, tvm.runtime.Tensor) and str(value.dtype) in _NUMPY_TYPES


def array_of(constant: tvm.ir.GenericConst) -> np.ndarray:
    """Return the values of a constant as a read-only view of its own memory."""
    if not has_numpy_type(constant):
        return constant.value.numpy()
    view = np.from_dlpack(constant.value)
    view.flags.writeable = False
    return view


def constant_from(array: np.ndarray) -> tvm.ir.GenericConst:
    """Return a constant that holds a copy of `array`, of any strides, in aligned memory."""
    if str(array.dtype) not in _NUMPY_TYPES:
        return relax.const(array)
    tensor = tvm.runtime.empty(array.shape, str(array.dtype))
    np.copyto(np.from_dlpack(tensor), array)
    return relax.const(tensor)


_NUMPY_TYPES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
)
