"""Powers of integers with exponents known only at run time."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, kernel, parallel, when


def integer_power(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Return x ** y by squaring, modulo the range of the dtype.

    Of a negative power only those of 1 and -1 are integers; others give 0, as in torch.

    Args:
        x: (n,), integers.
        y: (n,) of the same dtype.
    """
    dtype = str(x.dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(x.shape[0]) as i:
            base, left = Scalar(ins[0][i], dtype), Scalar(ins[1][i], dtype)
            with when(left() < 0):
                is_odd = tirx.floormod(left(), tirx.const(2, dtype)) != 0
                is_unit = tirx.any(base() == 1, base() == -1)
                left.set(tirx.Select(is_odd, tirx.const(1, dtype), tirx.const(2, dtype)))
                base.set(tirx.Select(is_unit, base(), tirx.const(0, dtype)))
            result = Scalar(1, dtype)
            with T.While(left() > 0):
                with when(tirx.floormod(left(), tirx.const(2, dtype)) != 0):
                    result.set(result() * base())
                base.set(base() * base())
                left.set(tirx.floordiv(left(), tirx.const(2, dtype)))
            outs[0][i] = result()

    return kernel([x, y], [((x.shape[0],), dtype)], body, "integer_power")[0]
