"""Optionals: decided while importing, so that they leave no code."""

from __future__ import annotations

import numpy as np

from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.value import EmptyOptional, Value


@converter("Optional")
def optional(op: Op) -> Value:
    """Wrap a value, or nothing."""
    return op.value(0) if op.has(0) else EmptyOptional(op.title, "float32")


@converter("OptionalHasElement")
def optional_has_element(op: Op) -> np.ndarray:
    """Tell whether there is an element; a tensor or sequence is one."""
    return np.asarray(op.has(0) and not isinstance(op.value(0), EmptyOptional))


@converter("OptionalGetElement")
def optional_get_element(op: Op) -> Value:
    """Return the element, which must exist."""
    value = op.value(0)
    if isinstance(value, EmptyOptional):
        raise InvalidModel("the optional has no element")
    return value
