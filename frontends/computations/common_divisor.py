"""Greatest common divisors and least common multiples of integers."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, as_dtype, kernel, parallel

_WIDE = "uint64"


def common_divisor(x: te.Tensor, y: te.Tensor, *, multiple: bool = False) -> te.Tensor:
    """Return the greatest common divisor of each two elements, or their least common multiple.

    Neither is negative; gcd(0, 0) and lcm(0, y) are 0. A multiple beyond int64 is not defined, one
    beyond a narrower dtype wraps around.

    Args:
        x: (n,), integers.
        y: (n,) of the same dtype.
        multiple: Whether to return the multiple.
    """
    dtype = str(x.dtype)
    none = tirx.const(0, _WIDE)

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(x.shape[0]) as i:
            left, right = (_magnitude(array[i], dtype) for array in ins)
            # Euclid's algorithm. Without signs no division traps: of the lowest integer by -1 does.
            first, second = Scalar(left(), _WIDE), Scalar(right(), _WIDE)
            with T.While(second() > none):
                rest = Scalar(tirx.floormod(first(), second()), _WIDE)
                first.set(second())
                second.set(rest())
            if multiple:
                divisor = tirx.max(first(), tirx.const(1, _WIDE))
                first.set(tirx.floordiv(left(), divisor) * right())
            outs[0][i] = as_dtype(_magnitude(as_dtype(first(), dtype), dtype)(), dtype)

    return kernel([x, y], [((x.shape[0],), dtype)], body, "common_divisor")[0]


def _magnitude(value: Any, dtype: str) -> Scalar:
    """Return |value| as uint64; that of the lowest int64 fits."""
    if dtype.startswith("uint"):
        return Scalar(as_dtype(value, _WIDE), _WIDE)
    wide = Scalar(as_dtype(as_dtype(value, "int64"), _WIDE), _WIDE)
    # By bits: LLVM assumes of a subtraction from 0 that it does not wrap around.
    opposite = tirx.bitwise_not(wide()) + tirx.const(1, _WIDE)
    return Scalar(tirx.Select(value < tirx.const(0, dtype), opposite, wide()), _WIDE)
