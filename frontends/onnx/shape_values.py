"""Evaluate operators on symbolic shape values, so that shape arithmetic leaves no code.

A shape value is a NumPy object array of dimensions (`frontends.onnx.value`), or of ratios where a
model computes sizes in floats. Rearranging operators are NumPy's own on that array; arithmetic goes
through `DimArithmetic`, which divides truncating as ONNX does, and `RatioArithmetic`. What cannot
stay symbolic returns None and is computed at run time instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import tirx

from frontends.dims import DimArithmetic, as_dim, is_static, prim
from frontends.onnx.ratio import MANTISSA, NotARatio, Ratio, RatioArithmetic
from frontends.onnx.rearrange import REARRANGING, Arrays, Unknown, as_objects
from frontends.onnx.value import Value

_MAX_ELEMENTS = 256
_KINDS = {
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
}


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[Value | None], arithmetic: DimArithmetic
) -> Value | None:
    """Return the node's result as shape value, or None if it must be computed at run time."""
    if len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
        return None
    if not (node.op_type in _RULES or node.op_type in _OF_RATIOS or node.op_type == "Cast"):
        return None
    if not all(value is None or _is_small(value) for value in inputs):
        return None
    attributes = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    given = [value.dtype for value in inputs if value is not None]
    dtype = given[1] if node.op_type == "Where" else given[0]
    try:
        arrays = [None if value is None else _elements(value) for value in inputs]
        if node.op_type == "Cast":
            wanted = _KINDS.get(attributes["to"], "")
            return _cast(node.output[0], dtype, arrays[0], wanted, arithmetic)
        if dtype in MANTISSA:
            ratios = RatioArithmetic(arithmetic, dtype)
            result = _OF_RATIOS[node.op_type](arrays, attributes, ratios)
        else:
            result = _RULES[node.op_type](arrays, attributes, arithmetic)
    except (Unknown, NotARatio, KeyError, ZeroDivisionError):
        return None
    if node.op_type in ("Equal", "Less", "Greater"):
        dtype = "bool"
    if dtype in MANTISSA:
        return Value.of_ratios(node.output[0], result, dtype)
    return Value.of_dims(node.output[0], result, dtype)


def _is_small(value: Value) -> bool:
    """Tell whether all elements are known now, and few."""
    known = value.array if value.array is not None else value.symbolic
    return known is not None and known.size <= _MAX_ELEMENTS


def _elements(value: Value) -> np.ndarray:
    """Return the elements as dimensions or ratios."""
    elements = value.dims() if value.dtype not in MANTISSA else value.ratios()
    if elements is None:
        raise Unknown
    return elements


def _cast(
    name: str, dtype: str, elements: Any, wanted: str, arithmetic: DimArithmetic
) -> Value | None:
    """Return sizes as ratios, the integer parts of ratios, or ratios of a wider float."""
    if not wanted:
        return None
    result = np.empty(elements.shape, dtype=object)
    for place in np.ndindex(result.shape):
        item = elements[place]
        if wanted not in MANTISSA:
            ratios = RatioArithmetic(arithmetic, dtype) if dtype in MANTISSA else None
            result[place] = item if ratios is None else ratios.truncate(item)
        elif dtype not in MANTISSA:
            result[place] = Ratio(item)
        elif wanted == dtype or (item.is_exact and wanted == "float64"):
            result[place] = item
        else:
            raise NotARatio
    make = Value.of_ratios if wanted in MANTISSA else Value.of_dims
    return make(name, result, wanted)


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
        total = as_objects(arrays[0])
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
        raise Unknown

    return decide


def _where(arithmetic: DimArithmetic, condition: Any, left: Any, right: Any) -> Any:
    if is_static(condition):
        return left if condition else right
    raise Unknown


def _modulo(arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic) -> np.ndarray:
    of_dividend = bool(attributes.get("fmod", 0))

    def remainder(arithmetic: DimArithmetic, left: Any, right: Any) -> Any:
        if not of_dividend:
            return arithmetic.floormod(left, right)
        return arithmetic.simplify(left - arithmetic.truncdiv(left, right) * right)

    return _elementwise(remainder)(arrays, attributes, arithmetic)


def _reduce_prod(
    arrays: Arrays, attributes: dict[str, Any], arithmetic: DimArithmetic
) -> np.ndarray:
    if len(arrays) > 1 or "axes" in attributes and arrays[0].ndim != 1:
        raise Unknown
    product = arithmetic.product(arrays[0].flat)
    result = as_objects(product)
    return result.reshape((1,) * arrays[0].ndim) if attributes.get("keepdims", 1) else result


def _rounded(round_to: Callable[..., Any]) -> Callable[..., Ratio]:
    return lambda arithmetic, item: Ratio(round_to(arithmetic, item))


def _negate(arithmetic: DimArithmetic, item: Any) -> Any:
    return arithmetic.simplify(0 - item)


def _absolute(arithmetic: DimArithmetic, item: Any) -> Any:
    if arithmetic.is_nonnegative(item):
        return item
    return as_dim(tirx.abs(prim(item)))


_OF_RATIOS: dict[str, Callable[..., np.ndarray]] = {
    "Add": _elementwise(RatioArithmetic.add),
    "Sub": _elementwise(RatioArithmetic.subtract),
    "Mul": _elementwise(RatioArithmetic.multiply),
    "Div": _elementwise(RatioArithmetic.divide),
    "Neg": _elementwise(RatioArithmetic.negate),
    "Abs": _elementwise(RatioArithmetic.absolute),
    "Min": _fold_left(RatioArithmetic.minimum),
    "Max": _fold_left(RatioArithmetic.maximum),
    "Floor": _elementwise(_rounded(RatioArithmetic.floor)),
    "Ceil": _elementwise(_rounded(RatioArithmetic.ceil)),
    "Round": _elementwise(_rounded(RatioArithmetic.round)),
    "Where": _elementwise(_where),
    **REARRANGING,
}
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
    "ReduceProd": _reduce_prod,
    **REARRANGING,
}
