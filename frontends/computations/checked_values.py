"""A vector whose elements are checked when the model runs."""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, index, kernel, product, serial, when

NAME = "checked_values"


def checked_values(x: te.Tensor, refused: int, message: str, *, most: int = 0) -> te.Tensor:
    """Return `x`; the kernel raises an error if too many elements are `refused`.

    Args:
        x: Any shape but a scalar's, any dtype.
        refused: The number to look for.
        message: Text of the error.
        most: How many elements may be that number.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        found = Scalar(0)
        with serial(product(x.shape)) as place:
            outs[0][place] = ins[0][place]
            with when(ins[0][place] == refused):
                found.set(found() + 1)
        with T.Assert(found() <= index(most), message, "ValueError"):
            T.evaluate(0)

    return kernel([x], [(tuple(x.shape), str(x.dtype))], body, NAME)[0]
