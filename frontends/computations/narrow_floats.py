"""Conversion between ordinary floats and float8, float6 and float4 bit patterns held in uint8.

Rounding is to nearest, ties to even, through denormals; what happens beyond the range follows the
tables of the ONNX operator Cast. Formats: OCP 8-bit floating point specification, OCP Microscaling
formats 1.0, and Noune et al., "8-bit numerical formats for deep neural networks" (the fnuz kinds).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from tvm import te, tirx

SCALE_FORMAT = "float8_e8m0fnu"  # unsigned powers of two, no mantissa
_SCALE_MAX, _SCALE_NAN = 0xFE, 0xFF


@dataclass(frozen=True)
class _Source:
    """IEEE binary32 or binary64: how its bits are laid out."""

    dtype: str
    bits: str
    width: int
    mantissa: int
    bias: int


_SINGLE = _Source("float32", "uint32", 32, 23, 127)
_DOUBLE = _Source("float64", "uint64", 64, 52, 1023)


@dataclass(frozen=True)
class _Format:
    """A narrow floating-point format."""

    width: int
    mantissa: int
    min_exponent: int  # of the least normal number
    max_code: int  # of the greatest finite number
    overflow: int  # what is beyond it becomes, where the conversion does not saturate
    nan: int  # the code of a positive NaN, and what a negative one adds to it
    negative_nan: int
    has_negative_zero: bool


@cache
def _format(dtype: str) -> _Format:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    info = ml_dtypes.finfo(kind)

    def code(value: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.array([value], "float32").astype(kind).view(np.uint8)[0])

    return _Format(
        width=info.bits,
        mantissa=info.nmant,
        min_exponent=info.minexp,
        max_code=code(float(info.max)),
        overflow=code(np.inf),
        nan=code(np.nan),
        negative_nan=code(-np.nan),
        has_negative_zero=code(-0.0) != 0,
    )


@cache
def decode_table(dtype: str, wide: str) -> np.ndarray:
    """Return the 256 values of the bit patterns of `dtype`, in the float dtype `wide`."""
    kind = np.dtype(getattr(ml_dtypes, dtype))
    codes = np.arange(256) % 2 ** ml_dtypes.finfo(kind).bits
    target = np.dtype(getattr(ml_dtypes, wide, wide))
    with np.errstate(all="ignore"):
        return codes.astype(np.uint8).view(kind).astype(target)


def decode(codes: te.Tensor, table: te.Tensor) -> te.Tensor:
    """Return what the bit patterns `codes` (uint8) mean, looked up in a `decode_table`."""
    return te.compute(codes.shape, lambda *i: table(codes(*i).astype("int32")), name="decode")


def encode(x: te.Tensor, dtype: str, *, saturate: bool) -> te.Tensor:
    """Return the bit patterns (uint8) of a float tensor's elements rounded to `dtype`.

    Args:
        x: A float tensor of any shape; float16 and bfloat16 convert by way of float32, exactly.
        dtype: The narrow format, not float8_e8m0fnu.
        saturate: Whether what is beyond the range becomes the greatest finite number, infinities
            included; else it becomes infinity or, in a format without it, NaN.
    """
    return te.compute(x.shape, lambda *i: encode_element(x(*i), dtype, saturate), name="encode")


def encode_element(value: Any, dtype: str, saturate: bool) -> Any:
    """Return the bit pattern of one element as `encode` does."""
    source = _DOUBLE if str(value.ty) == "float64" else _SINGLE
    target = _format(dtype)

    def u(number: int) -> Any:
        return tirx.const(number, source.bits)

    bits = tirx.reinterpret(source.bits, value.astype(source.dtype))
    sign = bits >> u(source.width - 1)
    magnitude = bits & u(2 ** (source.width - 1) - 1)

    dropped = source.mantissa - target.mantissa
    half_even = u(2 ** (dropped - 1) - 1) + ((magnitude >> u(dropped)) & u(1))
    # The target's exponent field is that of the source less the difference of the biases.
    rebias = source.bias - 1 + target.min_exponent
    normal = ((magnitude + half_even) >> u(dropped)) - u(rebias << target.mantissa)

    # Adding the number whose unit in the last place is the target's least denormal rounds to it.
    unit = 2.0 ** (target.min_exponent - target.mantissa + source.mantissa)
    shifted = tirx.reinterpret(source.dtype, magnitude) + tirx.const(unit, source.dtype)
    field = source.bias + target.min_exponent - target.mantissa + source.mantissa
    denormal = tirx.reinterpret(source.bits, shifted) - u(field << source.mantissa)

    least_normal = u((source.bias + target.min_exponent) << source.mantissa)
    code = tirx.Select(magnitude < least_normal, denormal, normal)
    beyond = target.max_code if saturate else target.overflow
    code = tirx.Select(code > u(target.max_code), u(beyond), code)
    negative = sign << u(target.width - 1)
    if not target.has_negative_zero:
        negative = tirx.Select(code == u(0), u(0), negative)
    infinity = (2 * source.bias + 1) << source.mantissa
    nan = tirx.Select(sign == u(0), u(target.nan), u(target.negative_nan))
    return tirx.Select(magnitude > u(infinity), nan, code | negative).astype("uint8")


def encode_scale(x: te.Tensor, *, saturate: bool, rounding: str) -> te.Tensor:
    """Return the float8_e8m0fnu bit patterns of a float tensor's elements: biased exponents.

    Args:
        x: A float tensor of any shape; the sign is ignored.
        saturate: Whether what is beyond the range becomes the least or greatest power of two;
            else it becomes NaN.
        rounding: "up" away from zero, "down" towards zero, or "nearest" with ties up.
    """

    def u(number: int) -> Any:
        return tirx.const(number, "uint32")

    def element(*place: Any) -> Any:
        bits = tirx.reinterpret("uint32", x(*place).astype("float32")) & u(0x7FFFFFFF)
        exponent, fraction = bits >> u(23), bits & u(0x7FFFFF)
        # Among float32's denormals the only power of two that counts is 2^-127, the least code.
        denormal = exponent == u(0)
        if rounding == "up":
            more = fraction > tirx.Select(denormal, u(0x400000), u(0))
        elif rounding == "nearest":
            more = fraction >= tirx.Select(denormal, u(0x600000), u(0x400000))
        else:
            more = tirx.const(False, "bool")
        code = exponent + tirx.Select(more, u(1), u(0))
        code = tirx.Select(code > u(_SCALE_MAX), u(_SCALE_MAX if saturate else _SCALE_NAN), code)
        if not saturate:
            code = tirx.Select(bits < u(0x400000), u(_SCALE_NAN), code)
        return tirx.Select(bits > u(0x7F800000), u(_SCALE_NAN), code).astype("uint8")

    return te.compute(x.shape, element, name="encode_scale")
