"""Pass elements of types that TVM only stores (int4, float8, ...) in and out of a compiled model.

Inside, they are bytes (`frontends.storage_types`); outside, NumPy arrays of an `ml_dtypes` type,
one element a byte, or torch's float8 tensors.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from frontends.storage_types import container, from_container, is_stored, to_container


def to_stored(value: Any, kind: str, dtype: str) -> Any:
    """Return an argument as the model takes it.

    Args:
        value: An array whose elements are of type `dtype`.
        kind: "numpy", "torch" or "dlpack".
        dtype: The input's element type; the value is returned as it is if TVM computes in it.
    """
    if not is_stored(dtype):
        return value
    if kind == "torch":
        torch = sys.modules["torch"]
        return value.contiguous().view(getattr(torch, container(dtype)))
    if kind == "numpy":
        return to_container(np.asarray(value))
    return to_container(np.asarray(value.numpy() if hasattr(value, "numpy") else value))


def from_stored(value: Any, kind: str, dtype: str) -> Any:
    """Return a result of element type `dtype` in the type that `kind` has for it, if it has one."""
    if not is_stored(dtype):
        return value
    if kind == "numpy":
        return from_container(value, dtype)
    if kind == "torch":
        own = getattr(sys.modules["torch"], dtype, None)
        # torch has names for sub-byte integers that no operator reads; bytes serve better.
        return value.view(own) if own is not None and dtype.startswith("float8") else value
    return value
