"""Graphs whose weights are parameters that stay from call to call."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from frontends.fixed_inputs import mark_fixed

Build = Callable[..., relax.Expr]


def fixed_module(
    shape: tuple[object, ...], weights: dict[str, tuple[int, ...]], build: Build
) -> tvm.IRModule:
    """Return a module of `build(builder, x, **weights)`; all inputs but `x` are fixed."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    fixed = {n: relax.Var(n, relax.TensorType(s, "float32")) for n, s in weights.items()}
    with builder.function("main", [x, *fixed.values()]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x, **fixed))
        builder.emit_func_output(result)
    return mark_fixed(builder.get(), range(1, 1 + len(fixed)))
