"""QuantizeLinear and DequantizeLinear, of ai.onnx and of com.microsoft."""

from __future__ import annotations

from typing import Any

import onnx
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations import quantization
from frontends.computations.quantization import Granularity
from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.cast import narrow, widen
from frontends.onnx.registry import converter
from frontends.storage_types import is_stored_float

MICROSOFT = "com.microsoft"
_WIDE_FLOATS = ("float16", "bfloat16", "float32", "float64")


@converter("DequantizeLinear")
@converter("DequantizeLinear", domain=MICROSOFT)
def dequantize(op: Op) -> relax.Expr:
    """Return (x - zero_point) * scale, scale by tensor, axis or block, in the result's dtype."""
    target = _named_dtype(op, "output_dtype") or op.dtype(1)
    if target not in _WIDE_FLOATS:
        raise op.unsupported(f"a result of type {target}")
    granularity = read_granularity(op)
    x, _ = widen(op, op.x(), op.dtype(), "float32")
    tensors = [x, parameter(op, 1, granularity)]
    if op.has(2):
        tensors.append(parameter(op, 2, granularity))

    def compute(data: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
        return quantization.dequantize(data, scale, zero, granularity, target)

    return op.te(compute, *tensors, name="dequantize")


@converter("QuantizeLinear")
@converter("QuantizeLinear", domain=MICROSOFT)
def quantize(op: Op) -> Any:
    """Return saturate(round_half_even(x / scale) + zero_point); float8 and float4 round alike."""
    named = _named_dtype(op, "output_dtype")
    target = op.dtype(2) if op.has(2) else (named or "uint8")
    if named and named != target:
        raise InvalidModel(f"output_dtype is {named}, the zero point is {target}")
    precision = _named_dtype(op, "precision") or op.dtype(1)
    if precision not in _WIDE_FLOATS:
        precision = "float32"
    granularity = read_granularity(op)
    tensors = [op.x(), parameter(op, 1, granularity)]
    if op.has(2):
        tensors.append(parameter(op, 2, granularity))
    if is_stored_float(target):

        def scaled(data: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
            return quantization.scale_down(data, scale, zero, granularity, precision)

        ratio = op.te(scaled, *tensors, name="scale_down")
        wide = "float64" if precision == "float64" else "float32"
        return narrow(op, ratio, wide, target, saturate=bool(op.attr("saturate", 1)))

    def compute(data: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
        return quantization.quantize(
            data, scale, zero, granularity, target=target, precision=precision
        )

    return op.stored(op.te(compute, *tensors, name="quantize"), target)


@converter("DynamicQuantizeLinear")
def dynamic_quantize(op: Op) -> Any:
    """Quantize to uint8 between the data's extremes and 0; return the scale and zero point too.

    Where the data is all zeros any scale will do: it is 1.
    """
    x, none = op.x(), op.const(0.0)
    low = op.emit(R.minimum(op.emit(R.min(x)), none))
    high = op.emit(R.maximum(op.emit(R.max(x)), none))
    step = op.emit(R.divide(op.emit(R.subtract(high, low)), op.const(255.0)))
    scale = op.emit(R.where(op.emit(R.greater(step, none)), step, op.const(1.0)))
    offset = op.emit(R.divide(op.emit(R.negative(low)), scale))
    zero = op.te(
        lambda t: quantization.round_and_saturate(t, None, "uint8"), offset, name="zero_point"
    )

    def compute(data: te.Tensor, scale: te.Tensor, zero: te.Tensor) -> te.Tensor:
        whole = Granularity()
        return quantization.quantize(
            data, scale, zero, whole, target="uint8", precision=op.dtype(0)
        )

    return op.te(compute, x, scale, zero, name="quantize"), scale, zero


def read_granularity(op: Op) -> Granularity:
    """Return how the scale, input 1, is spread over the data, input 0.

    Raises:
        InvalidModel: If its rank fits no granularity.
    """
    scale, data = op.shape(1), op.shape(0)
    single = all(is_static(dim) and dim == 1 for dim in scale)
    block = int(op.attr("block_size", 0) or 0)
    if not scale or (len(scale) == 1 and single and not (block and len(data) == 1)):
        return Granularity()
    axis = normalize_axis(int(op.attr("axis", 1)), len(data)) if len(data) > 1 else 0
    if block < 0:
        raise InvalidModel(f"block_size is {block}")
    if len(scale) != (len(data) if block else 1):
        raise InvalidModel(
            f"a scale of rank {len(scale)} for data of rank {len(data)} and block_size {block}"
        )
    return Granularity(axis, block)


def parameter(op: Op, place: int, granularity: Granularity) -> relax.Expr:
    """Return a scale or zero point, checked to have an element for each element of input 0.

    Raises:
        InvalidModel: If its shape does not fit; symbolic sizes are checked at run time.
    """
    x, dtype = widen(op, op.x(place), op.dtype(place), "float32")
    given, data = op.shape(place), op.shape(0)
    if granularity.axis is None:
        if any(not is_static(dim) or dim != 1 for dim in given):
            raise InvalidModel(f"input {place} has shape {list(given)}, the scale is one number")
        return x
    wanted: list[Dim]
    if granularity.block:
        wanted = list(data)
        blocks = data[granularity.axis] + (granularity.block - 1)
        wanted[granularity.axis] = op.arithmetic.simplify(blocks // granularity.block)
    else:
        wanted = [data[granularity.axis]]
    if len(given) != len(wanted):
        raise InvalidModel(f"input {place} has rank {len(given)}, not {len(wanted)}")
    for have, need in zip(given, wanted, strict=True):
        if is_static(have) and is_static(need) and have != need:
            raise InvalidModel(f"input {place} has shape {list(given)}, not {wanted}")
    if all(op.arithmetic.equal(a, b) for a, b in zip(given, wanted, strict=True)):
        return x
    return op.match_shape(x, wanted, dtype)


def _named_dtype(op: Op, attribute: str) -> str:
    kind = int(op.attr(attribute, 0) or 0)
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind)) if kind else ""
