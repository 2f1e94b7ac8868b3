"""Groups of operators that the algebraic rules and `sink_views` turn into fewer."""

from __future__ import annotations

from typing import Any

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operators.views import regroup
from tests.fuzz.graphs.sizes import product

Step = Any  # the number of a step, or None where an operator did not take its operands

_UNARY = ("relu", "tanh", "sigmoid", "abs", "negative")


def behind_a_view(draw: Draw) -> None:
    """Operators of single elements after a view; operands are broadcast, or viewed as well."""
    x = draw.pick_float(lambda t: product(t.shape) is not None)
    y: Step = draw.apply(draw.rng.choice(_UNARY), x)  # type: ignore[arg-type]
    if y is None:
        return
    before = y
    y = draw.apply("reshape", y, shape=regroup(draw, draw.type(y).shape))
    for _ in range(draw.rng.choice([1, 2, 3])):
        if y is None:
            return
        shape, dtype = draw.type(y).shape, draw.type(y).dtype
        way = draw.rng.random()
        if way < 0.3:
            y = draw.apply(draw.rng.choice(_UNARY), y)
        elif way < 0.6:
            y = draw.apply("add", y, draw.weight(shape[len(shape) // 2 :], dtype))
        elif way < 0.8:
            y = draw.apply("multiply", draw.scalar(0.5, dtype), y)
        else:
            other = draw.apply("reshape", draw.apply("tanh", before), shape=shape)  # type: ignore
            y = draw.apply("subtract", y, other)  # type: ignore[arg-type]


def mapped_parts(draw: Draw) -> None:
    """Split, compute part by part, join: nearly always alike, and in order."""
    x = draw.pick_float(lambda t: any(isinstance(s, int) and s > 1 and s % 2 == 0 for s in t.shape))
    if x is None:
        return
    shape, dtype, rng = draw.type(x).shape, draw.type(x).dtype, draw.rng
    axis = next(a for a, s in enumerate(shape) if isinstance(s, int) and s > 1 and s % 2 == 0)
    half = int(shape[axis]) // 2
    if rng.random() < 0.5:
        cut = draw.apply("split", x, axis=axis, cuts=(half,))
        parts = [draw.apply("item", cut, index=i) for i in (0, 1)]  # type: ignore[arg-type]
    else:
        ranges = ((0, half, 1), (half, 2 * half, 1))
        parts = [draw.apply("slice", x, axis=axis, range=bounds) for bounds in ranges]
    for _ in range(rng.choice([1, 2])):
        if rng.random() < 0.5:
            one = draw.scalar(rng.choice([0.5, -1.0]), dtype)
            parts = [draw.apply("multiply", part, one) for part in parts]  # type: ignore[arg-type]
        else:
            name = rng.choice(_UNARY)
            other = name if rng.random() < 0.85 else rng.choice(_UNARY)
            parts = [draw.apply(n, part) for n, part in zip((name, other), parts)]  # type: ignore # noqa: B905
    if rng.random() < 0.1:
        parts.reverse()
    draw.apply("concat", *parts, axis=axis)  # type: ignore[arg-type]


def unbound_stack(draw: Draw) -> None:
    """Concatenate, view as a stack, take one part."""
    x = draw.pick_float(lambda t: bool(t.shape) and all(isinstance(s, int) for s in t.shape))
    if x is None:
        return
    shape, rng = draw.type(x).shape, draw.rng
    axis, parts = rng.randrange(len(shape)), [x, draw.apply("tanh", x)]
    joined = draw.apply("concat", *parts, axis=axis)  # type: ignore[arg-type]
    if joined is None:
        return
    stack = draw.apply("reshape", joined, shape=(*shape[:axis], 2, *shape[axis:]))
    place = rng.randrange(2)
    part = draw.apply("slice", stack, axis=axis, range=(place, place + 1, 1))  # type: ignore
    draw.apply("squeeze", part, axis=axis)  # type: ignore[arg-type]


def stacked_layers(draw: Draw) -> None:
    """(x A + a) B + b, with a hidden layer that is narrow, wide, or read by others."""
    x = draw.pick(
        lambda t: t.dtype == "float32" and len(t.shape) > 1 and isinstance(t.shape[-1], int)
    )
    if x is None or not draw.type(x).shape[-1]:
        return
    y: Step = x
    for _ in range(draw.rng.choice([2, 2, 3])):
        if y is None:
            return
        columns = draw.rng.choice([2, 4, 8])
        weight = draw.constant((draw.type(y).shape[-1], columns), "float32", -0.5, 0.5)
        y = draw.apply("matmul", y, weight)
        if y is not None and draw.rng.random() < 0.8:
            y = draw.apply("add", y, draw.constant((columns,), "float32"))
    if y is not None and draw.rng.random() < 0.3:
        draw.apply("divide", *2 * [draw.apply("exp", draw.apply("tanh", y))])  # type: ignore


REWRITE_MOTIFS = (behind_a_view, mapped_parts, unbound_stack, stacked_layers)
