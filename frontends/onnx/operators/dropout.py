"""Dropout in inference and in training mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.random_numbers import uniform
from frontends.dims import is_static
from frontends.onnx.op import Op
from frontends.onnx.operators.random_numbers import seed_of
from frontends.onnx.registry import converter


@converter("Dropout")
def dropout(op: Op) -> Any:
    """Pass the input through, or in training mode drop elements and scale the others up.

    Opset 12 made the ratio and the mode inputs; before that, the operator was for inference.
    """
    if op.opset < 7 and not op.attr("is_test", 0):
        raise op.unsupported("training mode before opset 12")
    training, ratio = op.constant(2), op.constant(1)
    never = training is not None and not bool(training.reshape(-1)[0])
    if not op.has(2) or never or (ratio is not None and float(ratio.reshape(-1)[0]) == 0.0):
        mask_dtype = "bool" if op.opset >= 10 else op.dtype()
        if len(op.node.output) > 1:
            return op.value(0), R.full_like(op.x(), op.const(1, mask_dtype), mask_dtype)
        return op.value(0)
    return _training(op)


def _training(op: Op) -> tuple[relax.Expr, relax.Expr]:
    """Drop with the given probability where the mode, perhaps known at run time, says so."""
    shape, dtype, seed = op.shape(), op.dtype(), seed_of(op)
    if all(is_static(dim) for dim in shape):
        sizes = [int(dim) for dim in shape]
        drawn = op.te(lambda: uniform(sizes, "float64", 0.0, 1.0, seed), name="uniform")
    else:
        drawn = op.te(lambda dims: uniform(dims, "float64", 0.0, 1.0, seed), dims=shape)
    ratio = op.x(1) if op.has(1) else op.const(np.float32(0.5), "float32")
    flat = relax.ShapeExpr([1])
    ratio, mode = op.emit(R.reshape(ratio, flat)), op.emit(R.reshape(op.x(2), flat))

    def keep(u: te.Tensor, p: te.Tensor, on: te.Tensor) -> te.Tensor:
        return te.compute(
            u.shape,
            lambda *i: tirx.any(tirx.Not(on(0)), u(*i) >= p(0).astype("float64")),
            name="kept",
        )

    def scale(x: te.Tensor, kept: te.Tensor, p: te.Tensor, on: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            rest = tirx.const(1.0, "float64") - p(0).astype("float64")
            number = x(*i).astype("float64") / tirx.Select(on(0), rest, tirx.const(1.0, "float64"))
            return tirx.Select(kept(*i), number.astype(dtype), tirx.const(0, dtype))

        return te.compute(x.shape, value, name="dropped")

    mask = op.te(keep, drawn, ratio, mode, name="kept")
    return op.te(scale, op.x(), mask, ratio, mode, name="dropped"), mask
