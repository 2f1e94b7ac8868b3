"""The computation of a product of 8-bit integers, as the rules for products take it."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from tir_schedules.blocks import constant


def byte_product(left: te.Tensor, right: te.Tensor, by_columns: bool) -> te.Tensor:
    """Return the product of matrices of bytes, summed in int32.

    Args:
        left: [..., M, K] of int8 or uint8.
        right: [K, N] or [..., K, N], whose leading axes broadcast; [N, K] if `by_columns`.
        by_columns: Whether the elements of a column lie side by side, as Tensor Cores load them.
    """
    steps = left.shape[-1]
    k = te.reduce_axis((0, steps), "k")
    columns = right.shape[0 if by_columns else -1]
    ahead = len(right.shape) - 2
    leading = [
        right.shape[at] if at < ahead and constant(size) == 1 else size
        for at, size in enumerate(left.shape[:-2])
    ]

    def place(tensor: te.Tensor, at: Any) -> list[Any]:
        kept = zip(at, tensor.shape[: len(tensor.shape) - 2], strict=False)
        return [tirx.IntImm("int64", 0) if constant(size) == 1 else index for index, size in kept]

    def element(*at: Any) -> Any:
        *lead, row, column = at
        x = left(*place(left, lead), row, k)
        y = right(column, k) if by_columns else right(*place(right, lead), k, column)
        return te.sum(x.astype("int32") * y.astype("int32"), axis=k)

    return te.compute([*leading, left.shape[-2], columns], element, name="matmul")
