"""Cast and CastLike between all element types; float8, float4 and sub-byte integers as storage."""

from __future__ import annotations

from typing import Any

import onnx
from tvm import relax
from tvm.relax import op as R

from frontends.computations import narrow_floats
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.value import Value, relax_constant
from frontends.storage_types import container, is_stored, is_stored_float


@converter("Cast", "CastLike")
def cast(op: Op) -> Any:
    """Convert the dtype; a cast to the same dtype is no operator.

    Casting to float8 follows the operator's tables (`saturate`, and `round_mode` for powers of
    two). Casting to a sub-byte integer drops higher bits, after truncation for floats, as in
    onnx's reference; beyond the range the specification leaves floats undefined.
    """
    if op.node.op_type == "CastLike":
        wanted = op.dtype(1)
    else:
        kind = op.attr("to")
        if isinstance(kind, str):
            kind = onnx.TensorProto.DataType.Value(kind)
        if kind == onnx.TensorProto.STRING:
            raise op.unsupported("strings")
        if kind not in onnx.TensorProto.DataType.values() or not kind:
            raise InvalidModel(f"attribute to is {kind}, which is no element type")
        wanted = str(onnx.helper.tensor_dtype_to_np_dtype(kind))
    if wanted == op.dtype():
        return op.value(0)
    x, source = widen(op, op.x(), op.dtype(), wanted)
    if is_stored(wanted):
        saturate = bool(op.attr("saturate", 1))
        rounding = op.attr("round_mode", "up")
        return narrow(op, x, source, wanted, saturate=saturate, rounding=rounding)
    if source == wanted:
        return x
    if wanted == "bool":
        return R.not_equal(x, op.const(0, source))
    return R.astype(x, wanted)


def widen(op: Op, x: relax.Expr, dtype: str, wanted: str) -> tuple[relax.Expr, str]:
    """Return elements in a dtype that TVM computes in, and that dtype.

    Args:
        op: The node.
        x: A tensor, a container if `dtype` is only stored.
        dtype: The ONNX type of its elements.
        wanted: The dtype to convert to; floats decode into it directly if it is a float.
    """
    if not is_stored_float(dtype):
        return x, container(dtype)
    computable = wanted in ("float16", "bfloat16", "float32", "float64")
    wide = wanted if computable else "float32"
    table = relax_constant(narrow_floats.decode_table(dtype, wide))
    return op.te(narrow_floats.decode, x, table, name="decode"), wide


def narrow(
    op: Op, x: relax.Expr, dtype: str, wanted: str, *, saturate: bool = True, rounding: str = "up"
) -> Value:
    """Return elements converted to a type that is only stored.

    Args:
        op: The node.
        x: A tensor of a dtype that TVM computes in.
        dtype: That dtype.
        wanted: float8, float6, float4, or an integer of 2 or 4 bits.
        saturate: For float8, whether what is beyond the range becomes the greatest number.
        rounding: For powers of two (float8_e8m0fnu): "up", "down" or "nearest".
    """
    if is_stored_float(wanted):
        if dtype not in ("float32", "float64"):
            x = op.emit(R.astype(x, "float32"))
        if wanted == narrow_floats.SCALE_FORMAT:
            result = op.te(
                lambda t: narrow_floats.encode_scale(t, saturate=saturate, rounding=rounding),
                x,
                name="encode_scale",
            )
        else:
            result = op.te(
                lambda t: narrow_floats.encode(t, wanted, saturate=saturate), x, name="encode"
            )
        return op.stored(result, wanted)
    if dtype.startswith(("float", "bfloat")):
        x = op.emit(R.astype(x, "int32"))
    signed = wanted.startswith("int")
    bits = int(wanted.lstrip("uint"))
    low = op.emit(R.astype(x, "uint8"))
    if signed:
        # The sign bit moves to the top of the byte and back.
        shift = op.const(8 - bits, "int8")
        moved = op.emit(R.left_shift(op.emit(R.astype(low, "int8")), shift))
        return op.stored(op.emit(R.right_shift(moved, shift)), wanted)
    mask = op.const(2**bits - 1, "uint8")
    return op.stored(op.emit(R.bitwise_and(low, mask)), wanted)
