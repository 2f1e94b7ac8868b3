"""Tests for NaN in every dtype."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from frontends.computations.kernel import as_dtype


def is_nan(value: Any) -> Any:
    """Tell whether a float scalar is NaN; TVM's own test takes no bfloat16."""
    half = str(value.ty) in ("float16", "bfloat16")
    return tirx.isnan(as_dtype(value, "float32") if half else value)
