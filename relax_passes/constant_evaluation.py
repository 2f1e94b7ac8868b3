"""Evaluate single operators on arrays, with NumPy, bit for bit as the operator is defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from relax_passes.lowering.rule import dtype_of, static_shape

Arrays = Sequence[np.ndarray]

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "negative": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "logical_not": np.logical_not,
    "square": np.square,
}
_FLOAT_ONLY = frozenset({"sqrt"})
_VIEWS = frozenset({"reshape", "flatten", "squeeze", "expand_dims"})


def evaluate(call: tvm.ir.Call, arrays: Arrays) -> np.ndarray | None:
    """Return the result of `call` on constant operands, None if this file does not know how.

    Args:
        call: An operator call whose result has a static shape.
        arrays: Its tensor operands in order, those of a tuple one by one.
    """
    shape = static_shape(call)
    if shape is None:
        return None
    name = str(call.op.name).removeprefix("relax.")
    with np.errstate(all="ignore"):
        value = _apply(name, call, arrays, shape)
    if value is None or value.shape != shape:
        return None
    dtype = dtype_of(call)
    return value if str(value.dtype) == dtype else None


def _apply(
    name: str, call: tvm.ir.Call, arrays: Arrays, shape: tuple[int, ...]
) -> np.ndarray | None:
    if name in _VIEWS:
        return arrays[0].reshape(shape)
    if name in _BINARY and len(arrays) == 2 and arrays[0].dtype == arrays[1].dtype:
        return np.asarray(_BINARY[name](*arrays))
    if name == "divide" and all(a.dtype.kind == "f" for a in arrays):
        return np.asarray(np.divide(*arrays))
    if name in _UNARY and (name not in _FLOAT_ONLY or arrays[0].dtype.kind == "f"):
        return np.asarray(_UNARY[name](arrays[0]))
    if name == "permute_dims":
        axes = call.attrs.axes
        return np.transpose(arrays[0], None if axes is None else [int(a) for a in axes])
    if name == "broadcast_to":
        return np.broadcast_to(arrays[0], shape)
    if name == "concat":
        axis = call.attrs.axis
        return np.concatenate(arrays, axis=0 if axis is None else int(axis))
    if name == "astype" and _casts_exactly(arrays[0].dtype, dtype_of(call)):
        return arrays[0].astype(dtype_of(call))
    if name == "where":
        return np.where(arrays[0].astype(bool), arrays[1], arrays[2])
    return None


def _casts_exactly(source: np.dtype, target: str) -> bool:
    """Return whether NumPy and C agree on this cast for every value."""
    if target not in ("float32", "float64", "int32", "int64", "float16", "bool", "int8", "uint8"):
        return False
    return source.kind in "biu" or np.dtype(target).kind == "f" or target == "bool"


def tensor_operands(call: tvm.ir.Call) -> list[relax.Expr]:
    """Return the tensor operands of a call, those of a tuple one by one."""
    operands: list[relax.Expr] = []
    for arg in call.args:
        if isinstance(arg, relax.Tuple):
            operands += list(arg.fields)
        elif isinstance(getattr(arg, "ty", None), relax.TensorType):
            operands.append(arg)
    return operands
