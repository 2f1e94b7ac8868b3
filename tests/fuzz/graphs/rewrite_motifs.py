"""Groups of operators that the algebraic rules and `sink_views` turn into fewer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operators.views import regroup
from tests.fuzz.graphs.sizes import product

Step = Any  # the number of a step, or None where an operator did not take its operands

_UNARY = ("relu", "tanh", "sigmoid", "abs", "negative")


def with_low(draw: Draw, step: int, low: float) -> Any:
    """Return a step with a bound that holds, though the bounds of its operands do not tell it."""
    old = draw.steps[step]
    return replace(old, type=replace(old.type, low=low))


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


def reread(draw: Draw) -> None:
    """A chain in which each link reads the one before it twice: written out, it explodes."""
    y: Step = draw.pick_float(lambda t: product(t.shape) is not None)
    mask = None
    if y is not None and draw.rng.random() < 0.5:
        mask = draw.weight(draw.type(y).shape, draw.type(y).dtype)
        mask = draw.apply("greater", mask, draw.scalar(0.0, draw.type(mask).dtype))
    for _ in range(draw.rng.choice([3, 5, 8])):
        if y is None:
            return
        half = draw.scalar(0.5, draw.type(y).dtype)
        way = draw.rng.randrange(5)
        other = draw.apply(draw.rng.choice(_UNARY), y)
        if way == 0 and mask is not None:
            y = draw.apply("where", mask, y, draw.apply("subtract", y, half))  # type: ignore[arg-type]
        elif way == 1:
            y = draw.apply("maximum", y, draw.apply("multiply", y, half))  # type: ignore[arg-type]
        elif way == 2:
            y = draw.apply("clip", y, low=-2.0, high=1.5)
        else:
            y = draw.apply("multiply", draw.apply("subtract", y, other), half)  # type: ignore


def moments(draw: Draw) -> None:
    """Mean and variance, or the logarithm of a sum of exponentials, along one or two axes."""
    x = draw.pick(lambda t: t.dtype == "float32" and bool(t.shape) and bool(product(t.shape)))
    if x is None:
        return
    rank, rng = len(draw.type(x).shape), draw.rng
    first = rng.randrange(rank)
    axes = tuple(sorted({first, rng.randrange(rank)} if rng.random() < 0.4 else {first}))
    keep = rng.random() < 0.7
    if rng.random() < 0.5:
        most = draw.apply("max", x, axes=axes, keep=True)
        spread = draw.apply("exp", draw.apply("subtract", x, most))  # type: ignore[arg-type]
        total = draw.apply("sum", spread, axes=axes, keep=True)  # type: ignore[arg-type]
        if total is not None:
            draw.steps[total] = with_low(draw, total, 0.9)  # one of its terms is e^0
            draw.apply("add", draw.apply("log", total), most)  # type: ignore[arg-type]
        return
    mean = draw.apply("mean", x, axes=axes, keep=True)
    centred = draw.apply("subtract", x, mean)  # type: ignore[arg-type]
    squared = draw.apply("multiply", centred, centred)  # type: ignore[arg-type]
    variance = draw.apply("mean", squared, axes=axes, keep=keep)  # type: ignore[arg-type]
    if keep and rng.random() < 0.5:
        draw.apply("add", draw.apply("multiply", mean, mean), variance)  # type: ignore


REWRITE_MOTIFS = (
    behind_a_view, mapped_parts, unbound_stack, stacked_layers, reread, moments,
)  # fmt: skip
