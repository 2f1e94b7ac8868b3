"""Graphs of attention in single operators, and what raising makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from relax_passes.raise_attention import raise_attention
from relax_passes.simplify_views import simplify_views
from tests.relax_passes.expand_attention import EXPAND
from tests.relax_passes.pass_checks import check, context

R = relax.op
B, S, T, H, D = 2, 5, 7, 4, 8  # batch, queries, keys, heads, head size
LOWEST = float(np.finfo("float32").min)
Emit = Callable[[relax.Expr], relax.Var]
Score = Callable[[Emit, relax.Expr], relax.Expr]
Mask = relax.Expr | np.ndarray | None


def attention_module(
    build: Callable[..., relax.Expr], *shapes: tuple[object, ...], dtypes: tuple[str, ...] = ()
) -> tvm.IRModule:
    """Return a module that takes q, k, v and more, and returns `build(emit, q, k, v, ...)`."""
    builder = relax.BlockBuilder()
    names = [*dtypes, *["float32"] * (len(shapes) - len(dtypes))]
    params = [
        relax.Var(f"x{i}", relax.TensorType(s, t))
        for i, (s, t) in enumerate(zip(shapes, names, strict=True))
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


FLAT = ((B, S, H * D), (B, T, H * D), (B, T, H * D))
SQUARE = ((B, S, H * D),) * 3


def inputs(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """Return a random input for each shape."""
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def const(value: float) -> relax.Expr:
    """Return a float32 scalar."""
    return relax.const(np.float32(value))


def heads(emit: Emit, x: relax.Expr, count: int = H) -> relax.Expr:
    """Return (batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, width = x.ty.shape.values
    view = emit(R.reshape(x, relax.ShapeExpr([batch, length, count, int(width) // count])))
    return emit(R.permute_dims(view, [0, 2, 1, 3]))


def joined(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    batch, count, length, size = x.ty.shape.values
    back = emit(R.permute_dims(x, [0, 2, 1, 3]))
    return R.reshape(back, relax.ShapeExpr([batch, length, int(count) * int(size)]))


def plain(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, *, score: Score) -> relax.Expr:
    """Write attention; `score` turns Q K^T into the argument of softmax."""
    q, k, v = (heads(emit, x) for x in (q, k, v))
    swapped = emit(R.permute_dims(k, [0, 1, 3, 2]))
    scores = score(emit, emit(R.matmul(q, swapped)))
    weights = emit(R.nn.softmax(scores, -1))
    return joined(emit, emit(R.matmul(weights, v)))


def scaled(emit: Emit, scores: relax.Expr) -> relax.Expr:
    """Divide by the root of the head size."""
    return emit(R.divide(scores, const(math.sqrt(D))))


def raised(mod: tvm.IRModule, *arrays: np.ndarray) -> tvm.IRModule:
    """Raise attention with checks, and return the module with its views simplified."""
    ctx = context()
    changed = check(raise_attention, mod, *arrays, finish=EXPAND)
    return simplify_views(changed, ctx)[0]


def the_attention(mod: tvm.IRModule) -> tvm.ir.Call:
    """Return the one call of attention in `main`."""
    calls = [
        b.value
        for block in mod["main"].body.blocks
        for b in block.bindings
        if getattr(getattr(b.value, "op", None), "name", "").startswith("relax.nn.attention")
    ]
    assert len(calls) == 1
    return calls[0]
