"""Rows of tensors: a step of a loop reads one, and gives one of each scan output, joined after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.relax import op as R

from frontends.control_flow.function_builder import FunctionBuilder
from frontends.dims import Dim, all_static, dims_of, dtype_of


def one_row(builder: FunctionBuilder, tensor: relax.Expr) -> relax.Expr:
    """Return a tensor as the only row of another one."""
    return builder.emit(R.reshape(tensor, relax.ShapeExpr([1, *dims_of(tensor)])), "row")


def take_row(builder: FunctionBuilder, tensor: relax.Expr, axis: int, place: Dim) -> relax.Var:
    """Return the part of a tensor at one place of an axis, without that axis."""

    def compute(x: te.Tensor, sizes: list[Any]) -> te.Tensor:
        dims = [dim for k, dim in enumerate(x.shape) if k != axis]
        return te.compute(dims, lambda *i: x(*i[:axis], sizes[0], *i[axis:]), name="scan_slice")

    return builder.emit_te(compute, tensor, name="scan_slice", dims=[place])


def join_rows(builder: FunctionBuilder, parts: Sequence[relax.Expr]) -> relax.Expr:
    """Concatenate rows, whose sizes are checked to agree where that is not known."""
    if len(parts) == 1:
        return parts[0]
    first = dims_of(parts[0])
    aligned = [parts[0]]
    for part in parts[1:]:
        have = dims_of(part)
        pairs = zip(have[1:], first[1:], strict=True)
        if not all(builder.arithmetic.equal(a, b) for a, b in pairs):
            part = builder.match_tensor(part, [have[0], *first[1:]], dtype_of(part))
        aligned.append(part)
    return builder.emit(R.concat(aligned, 0), "rows")


def no_rows(builder: FunctionBuilder, dims: Sequence[Dim], dtype: str) -> relax.Expr:
    """Return a tensor without rows; `dims` are the sizes of one."""
    if all_static(dims):
        return relax.const(np.zeros((0, *dims), dtype), dtype)
    full = R.full(relax.ShapeExpr([0, *dims]), relax.const(0, dtype), dtype)
    return builder.emit(full, "no_rows")
