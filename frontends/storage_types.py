"""Element types that are stored but not computed in: float8, float6, float4, and 2- and 4-bit ints.

TVM computes in none of them. Inside a graph their elements live one a byte in a *container*:
integers as int8 or uint8 of the same value, floats as uint8 bit patterns. Casts, quantizers and
dequantizers translate; operators that only move elements work on the container as it is. At the
public boundary the elements are `ml_dtypes` arrays (one a byte there as well) or torch's float8.
"""

from __future__ import annotations

import numpy as np

_INTEGERS = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
_FLOATS = frozenset(
    {
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)


def is_stored(dtype: str) -> bool:
    """Tell whether a dtype lives in a container of another dtype."""
    return dtype in _INTEGERS or dtype in _FLOATS


def is_stored_float(dtype: str) -> bool:
    """Tell whether a dtype is a floating-point one that lives as bit patterns in uint8."""
    return dtype in _FLOATS


def container(dtype: str) -> str:
    """Return the dtype in which TVM holds elements of `dtype`: itself if TVM computes in it."""
    return "uint8" if dtype in _FLOATS else _INTEGERS.get(dtype, dtype)


def integer_range(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer dtype, sub-byte ones included."""
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def to_container(array: np.ndarray) -> np.ndarray:
    """Return an `ml_dtypes` array as its container; any other array as it is."""
    name = str(array.dtype)
    if name in _FLOATS:
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)
    return array.astype(_INTEGERS[name]) if name in _INTEGERS else array


def from_container(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return a container's elements as `ml_dtypes` array; an array of `dtype` as it is."""
    if not is_stored(dtype):
        return array
    import ml_dtypes

    wanted = np.dtype(getattr(ml_dtypes, dtype))
    return array.view(wanted) if dtype in _FLOATS else array.astype(wanted)
