"""Linear quantization as tensor expressions: one kernel for every granularity.

A parameter (scale or zero point) belongs to the whole tensor, to an axis, or to a block of an axis;
`Granularity` says which element of it belongs to an element of the data. Rounding is to nearest,
ties to even; results saturate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from frontends.storage_types import container, integer_range


@dataclass(frozen=True)
class Granularity:
    """Which element of a scale or zero point belongs to an element of the data.

    Attributes:
        axis: The quantized axis; None where the parameter is one number.
        block: How many elements along `axis` share a parameter; 0 where the parameter is a vector
            along `axis`, else it has the data's rank.
    """

    axis: int | None = None
    block: int = 0

    def pick(self, parameter: te.Tensor, place: Sequence[Any]) -> Any:
        """Return the element of `parameter` for the data's element at `place`."""
        if self.axis is None:
            return parameter(*([0] * len(parameter.shape)))
        if not self.block:
            return parameter(place[self.axis])
        blocked = list(place)
        blocked[self.axis] = tirx.floordiv(blocked[self.axis], self.block)
        return parameter(*blocked)


def saturate(value: Any, dtype: str, low: int, high: int) -> Any:
    """Return a float rounded half to even and limited to [low, high], as `dtype`; NaN is `low`."""
    kind = str(value.ty)
    bottom, top = tirx.const(float(low), kind), tirx.const(float(high), kind)
    # Limits are integers, so limiting first changes nothing and keeps the conversion in range. The
    # maximum of NaN and a number is the number, and the value is written once: selects would
    # triple it with every step of a chain.
    limited = tirx.min(tirx.max(value, bottom), top)
    return tirx.nearbyint(limited).astype(dtype)


def quantize_element(ratio: Any, zero: Any | None, target: str) -> Any:
    """Return saturate(round(ratio) + zero) in the container of the integer dtype `target`.

    Args:
        ratio: A float32 or float64 expression: the value over the scale.
        zero: The zero point, an integer expression in the range of `target`, or None for 0.
        target: An integer dtype of at most 16 bits.
    """
    low, high = integer_range(target)
    if zero is None:
        return saturate(ratio, "int32", low, high).astype(container(target))
    # The sum is limited, not the ratio: wide enough for any zero point, and exact in float32.
    reach = high - low
    rounded = saturate(ratio, "int32", -reach, reach) + zero.astype("int32")
    bottom, top = tirx.const(low, "int32"), tirx.const(high, "int32")
    return tirx.min(tirx.max(rounded, bottom), top).astype(container(target))


def quantize(
    x: te.Tensor,
    scale: te.Tensor,
    zero: te.Tensor | None,
    granularity: Granularity,
    *,
    target: str,
    precision: str,
) -> te.Tensor:
    """Return saturate(round(x / scale) + zero) for an integer dtype `target`.

    Args:
        x: The data, any shape.
        scale: One number, a vector along the axis, or one number a block.
        zero: The zero points, shaped as `scale`; None for 0.
        granularity: Which parameter belongs to which element.
        target: The integer dtype; the result lives in its container.
        precision: The float dtype in which x is divided by the scale.
    """

    def element(*place: Any) -> Any:
        ratio = _divide(x(*place), granularity.pick(scale, place), precision)
        offset = None if zero is None else granularity.pick(zero, place)
        return quantize_element(ratio, offset, target)

    return te.compute(x.shape, element, name="quantize")


def quantize_once(x: te.Tensor, scale: te.Tensor, zero: te.Tensor, target: str) -> te.Tensor:
    """Return saturate(round(x / scale + zero)): the zero point is added before rounding.

    So a tie goes to the even result, where `quantize` takes the even quotient.

    Args:
        x: float32, any shape.
        scale: One float32 number.
        zero: One integer of the type `target`.
        target: "int8" or "uint8".
    """
    low, high = integer_range(target)

    def element(*place: Any) -> Any:
        offset = Granularity().pick(zero, place).astype("float32")
        moved = x(*place) / Granularity().pick(scale, place) + offset
        return saturate(moved, "int32", low, high).astype(target)

    return te.compute(x.shape, element, name="quantize_once")


def _divide(left: Any, right: Any, precision: str) -> Any:
    """Return left / right rounded to `precision`, in float32 or float64."""
    ratio = left.astype(precision) / right.astype(precision)
    if precision not in ("float16", "bfloat16"):
        return ratio
    exact = ratio.astype("float32")
    if precision == "float16":
        return exact
    # TVM computes in float32 for bfloat16 and drops the rounding in between; here it counts.
    exact = left.astype(precision).astype("float32") / right.astype(precision).astype("float32")
    bits = tirx.reinterpret("uint32", exact)
    even = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
    rounded = (bits + tirx.const(0x7FFF, "uint32") + even) & tirx.const(0xFFFF0000, "uint32")
    return tirx.Select(tirx.isnan(exact), exact, tirx.reinterpret("float32", rounded))


def scale_down(
    x: te.Tensor,
    scale: te.Tensor,
    zero: te.Tensor | None,
    granularity: Granularity,
    precision: str,
) -> te.Tensor:
    """Return x / scale + zero, the ratio rounded to `precision`; float32 at least."""

    def element(*place: Any) -> Any:
        ratio = _divide(x(*place), granularity.pick(scale, place), precision)
        return ratio if zero is None else ratio + granularity.pick(zero, place).astype(ratio.ty)

    return te.compute(x.shape, element, name="scale_down")


def dequantize(
    x: te.Tensor,
    scale: te.Tensor,
    zero: te.Tensor | None,
    granularity: Granularity,
    target: str,
) -> te.Tensor:
    """Return (x - zero) * scale as float dtype `target`.

    The difference is exact in int32; float16 and bfloat16 products are taken in float32.

    Args:
        x: Integers of at most 32 bits, or float32 numbers.
        scale: One number, a vector along the axis, or one number a block, of a float dtype.
        zero: The zero points, shaped as `scale` and of the type of `x`; None for 0.
        granularity: Which parameter belongs to which element.
        target: The float dtype of the result.
    """
    wide = "float64" if target == "float64" else "float32"
    middle = wide if str(x.dtype).startswith("float") else "int32"

    def element(*place: Any) -> Any:
        value = x(*place).astype(middle)
        if zero is not None:
            value = value - granularity.pick(zero, place).astype(middle)
        product = value.astype(wide) * granularity.pick(scale, place).astype(wide)
        return product.astype(target)

    return te.compute(x.shape, element, name="dequantize")


def round_and_saturate(ratio: te.Tensor, zero: te.Tensor | None, target: str) -> te.Tensor:
    """Return saturate(round(ratio) + zero) in the container of the integer dtype `target`.

    Args:
        ratio: Float numbers.
        zero: Zero points that broadcast to `ratio`; None for 0.
        target: An integer dtype of at most 16 bits.
    """

    def element(*place: Any) -> Any:
        if zero is None:
            return quantize_element(ratio(*place), None, target)
        own = place[len(place) - len(zero.shape) :]
        picked = [0 if is_one(size) else i for size, i in zip(zero.shape, own, strict=True)]
        return quantize_element(ratio(*place), zero(*picked), target)

    def is_one(size: Any) -> bool:
        return isinstance(size, tirx.IntImm | int) and int(size) == 1

    return te.compute(ratio.shape, element, name="round_and_saturate")
