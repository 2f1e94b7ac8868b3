"""Fill the places where a mask holds with the elements of another tensor, in order."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, kernel, product, serial, when


def masked_scatter(x: te.Tensor, mask: te.Tensor, source: te.Tensor) -> te.Tensor:
    """Return `x` with the first elements of `source` where `mask` holds.

    Args:
        x: Any shape.
        mask: bool, shaped as `x`.
        source: Any shape; where it has too few elements, `x` stays as it was.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        taken = Scalar(0)
        with serial(product(x.shape)) as place:
            outs[0][place] = ins[0][place]
            with when(tirx.all(ins[1][place], taken() < product(source.shape))):
                outs[0][place] = ins[2][taken()]
                taken.set(taken() + 1)

    return kernel([x, mask, source], [(x.shape, str(x.dtype))], body, "masked_scatter")[0]
