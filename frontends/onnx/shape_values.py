"""Evaluate integer operators on symbolic shape values, so that shape arithmetic leaves no code.

A shape value is a NumPy object array of dimensions (`frontends.onnx.value`). Rearranging operators
are NumPy's own on that array; arithmetic goes through `DimArithmetic`, which divides truncating
as ONNX does. What cannot stay symbolic returns None and is computed at run time instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import tirx

from frontends.onnx.dims import DimArithmetic, as_dim, is_static, prim
from frontends.onnx.value import Value

_MAX_ELEMENTS = 256
_INTEGERS = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.INT32: "int32"}


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[Value | None], arithmetic: DimArithmetic
) -> Value | None:
    """Return the node's result as shape value, or None if it must be computed at run time."""
    if node.op_type not in _RULES or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
        return None
    arrays: list[np.ndarray | None] = []
    for value in inputs:
        dims = value.dims() if value is not None else None
        if value is not None and (dims is None or dims.size > _MAX_ELEMENTS):
            return None
        arrays.append(dims)
    attributes = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    try:
        result = _RULES[node.op_type](arrays, attributes, arithmetic)
    except (_Unknown, ZeroDivisionError):
        return None
    first = next(value for value in inputs if value is not None)
    dtype = first.dtype
    if node.op_type == "Where":
        dtype = inputs[1].dtype  # type: ignore[union-attr]
    if node.op_type == "Cast":
        dtype = _INTEGERS[attributes["to"]]
    if node.op_type in ("Equal", "Less", "Greater"):
        dtype = "bool"
    return Value.of_dims(node.output[0], result, dtype)


class _Unknown(Exception):
    """The result depends on a symbol in a way that a shape value cannot express."""


Arrays = Sequence[Any]


def _static(array: np.ndarray | None) -> list[int] | None:
    if array is None:
        return None
    if not all(is_static(item) for item in array.flat):
        raise _Unknown
    return [int(item) for item in array.flat]


def _objects(result: Any) -> np.ndarray:
    """Return a NumPy object array, scalars included."""
    if isinstance(result, np.ndarray) and result.dtype == object:
        return result
    array = np.empty((), dtype=object)
    array[()] = result
    return array


def _elementwise(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def rule(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
        broadcast = np.broadcast_arrays(*arrays)
        result = np.empty(broadcast[0].shape, dtype=object)
        for place in np.ndindex(result.shape):
            result[place] = function(arithmetic, *(array[place] for array in broadcast))
        return result

    return rule


def _fold_left(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    pairwise = _elementwise(function)

    def rule(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
        total = _objects(arrays[0])
        for array in arrays[1:]:
            total = pairwise([total, array], attributes, arithmetic)
        return total

    return rule


def _compare(operator: str) -> Callable[..., Any]:
    def decide(arithmetic: DimArithmetic, left: Any, right: Any) -> int:
        difference = arithmetic.simplify(left - right)
        if is_static(difference):
            return int({"==": difference == 0, "<": difference < 0, ">": difference > 0}[operator])
        if operator == "==":
            # A size never equals a negative number: exporters compare shapes with -1.
            for side, other in ((left, right), (right, left)):
                if is_static(side) and side < 0 and arithmetic.is_nonnegative(other):
                    return 0
        raise _Unknown

    return decide


def _where(arithmetic: DimArithmetic, condition: Any, left: Any, right: Any) -> Any:
    if is_static(condition):
        return left if condition else right
    raise _Unknown


def _modulo(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    of_dividend = bool(attributes.get("fmod", 0))

    def remainder(arithmetic: DimArithmetic, left: Any, right: Any) -> Any:
        if not of_dividend:
            return arithmetic.floormod(left, right)
        return arithmetic.simplify(left - arithmetic.truncdiv(left, right) * right)

    return _elementwise(remainder)(arrays, attributes, arithmetic)


def _cast(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    if attributes["to"] not in _INTEGERS:
        raise _Unknown
    return _objects(arrays[0])


def _gather(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    _static(arrays[1])
    return _objects(np.take(arrays[0], arrays[1].astype("int64"), axis=attributes.get("axis", 0)))


def _concat(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    return np.concatenate(arrays, axis=attributes.get("axis", 0))


def _slice(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    def given(place: int, name: str) -> list[int] | None:
        if len(arrays) > place and arrays[place] is not None:
            return _static(arrays[place])
        return list(attributes[name]) if name in attributes else None

    starts, ends = given(1, "starts"), given(2, "ends")
    if starts is None or ends is None:
        raise _Unknown
    axes = given(3, "axes") or list(range(len(starts)))
    steps = given(4, "steps") or [1] * len(starts)
    result = arrays[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = result.shape[axis]
        stop: int | None = end
        if step < 0 and end < -length:
            stop = None  # before the first element, which Python would count from the back
        places = [slice(None)] * result.ndim
        places[axis] = slice(start, stop, step)
        result = result[tuple(places)]
    return _objects(result)


def _squeeze(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    axes = _static(arrays[1]) if len(arrays) > 1 else attributes.get("axes")
    return _objects(np.squeeze(arrays[0], None if axes is None else tuple(axes)))


def _unsqueeze(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    axes = _static(arrays[1]) if len(arrays) > 1 else attributes["axes"]
    return _objects(np.expand_dims(arrays[0], tuple(axes or ())))


def _reshape(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    return _objects(arrays[0].reshape(_static(arrays[1])))


def _reduce_prod(
    arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic
) -> np.ndarray:
    if len(arrays) > 1 or "axes" in attributes and arrays[0].ndim != 1:
        raise _Unknown
    product = arithmetic.product(arrays[0].flat)
    result = _objects(product)
    return result.reshape((1,) * arrays[0].ndim) if attributes.get("keepdims", 1) else result


def _negate(arithmetic: DimArithmetic, item: Any) -> Any:
    return arithmetic.simplify(0 - item)


def _absolute(arithmetic: DimArithmetic, item: Any) -> Any:
    if arithmetic.is_nonnegative(item):
        return item
    return as_dim(tirx.abs(prim(item)))


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "Add": _elementwise(lambda arithmetic, left, right: arithmetic.simplify(left + right)),
    "Sub": _elementwise(lambda arithmetic, left, right: arithmetic.simplify(left - right)),
    "Mul": _elementwise(lambda arithmetic, left, right: arithmetic.simplify(left * right)),
    "Div": _elementwise(lambda arithmetic, left, right: arithmetic.truncdiv(left, right)),
    "Mod": _modulo,
    "Neg": _elementwise(_negate),
    "Abs": _elementwise(_absolute),
    "Min": _fold_left(lambda arithmetic, left, right: arithmetic.minimum(left, right)),
    "Max": _fold_left(lambda arithmetic, left, right: arithmetic.maximum(left, right)),
    "Equal": _elementwise(_compare("==")),
    "Less": _elementwise(_compare("<")),
    "Greater": _elementwise(_compare(">")),
    "Where": _elementwise(_where),
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "ReduceProd": _reduce_prod,
}
