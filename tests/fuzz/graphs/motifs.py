"""Groups of operators that passes look for, or that once led a pass astray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.rewrite_motifs import REWRITE_MOTIFS, with_low
from tests.fuzz.graphs.sizes import Affine

Step = Any  # the number of a step, or None where an operator did not take its operands


def _real(draw: Draw, rank: int = 1) -> Step:
    """Return a tensor of float32 with a static last size."""
    return draw.pick(
        lambda t: (
            t.dtype == "float32"
            and len(t.shape) >= rank
            and isinstance(t.shape[-1], int)
            and t.shape[-1] > 0
        )
    )


def residual(draw: Draw) -> None:
    """x + f(x), where f is a few operators of one operand."""
    x = draw.pick_float()
    y = x
    for _ in range(draw.rng.choice([1, 2, 3])):
        y = draw.apply(draw.rng.choice(["relu", "tanh", "sigmoid", "abs", "negative"]), y)
    draw.apply(draw.rng.choice(["add", "multiply", "subtract"]), y, x)


def layer_norm(draw: Draw) -> None:
    """(x - mean) / sqrt(mean of squares + epsilon) * gamma + beta, as exporters write it."""
    x = _real(draw)
    if x is None:
        return
    axes = (len(draw.type(x).shape) - 1,)
    centred = draw.apply("subtract", x, draw.apply("mean", x, axes=axes, keep=True))
    squared = draw.apply("multiply", centred, centred)
    mean = draw.apply("mean", squared, axes=axes, keep=True)
    if mean is None:
        return
    mean = draw.apply("clip", mean, low=0.0, high=draw.type(mean).high) if draw.rng.random() < 0.2 \
        else mean  # fmt: skip
    shifted = draw.apply("add", mean, draw.scalar(0.125, "float32"))
    kind = draw.type(shifted)
    if kind.low < 0.1:
        draw.steps[shifted] = with_low(draw, shifted, 0.12)  # a mean of squares is not negative
    size = draw.type(x).shape[-1:]
    normal = draw.apply("divide", centred, draw.apply("sqrt", shifted))
    scaled = draw.apply("multiply", normal, draw.weight(size, "float32"))
    draw.apply("add", scaled, draw.weight(size, "float32"))


def gelu(draw: Draw) -> None:
    """x * 0.5 * (1 + erf(x / sqrt(2))), and x * sigmoid(x)."""
    x = _real(draw)
    if x is None:
        return
    if draw.rng.random() < 0.4:
        draw.apply("multiply", x, draw.apply("sigmoid", x))
        return
    inner = draw.apply("divide", x, draw.scalar(1.4142135381698608, "float32"))
    raised = draw.apply("add", draw.apply("erf", inner), draw.scalar(1.0, "float32"))
    draw.apply("multiply", draw.apply("multiply", x, raised), draw.scalar(0.5, "float32"))


def attention(draw: Draw) -> None:
    """softmax(q k^T * scale + mask) v, with q, k and v of one tensor."""
    x = _real(draw, 2)
    if x is None:
        return
    kind = draw.type(x)
    width = draw.rng.choice([4, 8])
    own = (kind.shape[-1], width)
    q, k, v = (draw.apply("matmul", x, draw.constant(own, "float32", -0.5, 0.5)) for _ in "qkv")
    axes = list(range(len(kind.shape)))
    axes[-2:] = [axes[-1], axes[-2]]
    scores = draw.apply("matmul", q, draw.apply("permute_dims", k, axes=tuple(axes)))  # type: ignore
    scores = draw.apply("multiply", scores, draw.scalar(width**-0.5, "float32"))  # type: ignore
    if scores is None:
        return
    weights = draw.apply("softmax", scores, axis=len(kind.shape) - 1)
    draw.apply("matmul", weights, v)  # type: ignore[arg-type]


def convolution(draw: Draw) -> None:
    """Padding, convolution, bias, batch norm, residual, activation: each may be missing."""
    x = draw.pick(
        lambda t: t.dtype == "float32" and len(t.shape) == 4
        and isinstance(t.shape[1], int)
        and t.shape[1] > 0
    )  # fmt: skip
    if x is None:
        return
    chance, channels = draw.rng.random, int(draw.type(x).shape[1])
    kernel = draw.rng.choice([1, 3])
    if chance() < 0.3:
        widths = ((0, 0), (0, 0), (1, 1), (1, 1))
        x = draw.apply("pad", x, widths=widths, value=0.0)
    out = channels if chance() < 0.5 else draw.rng.choice([4, 8, 16])
    weight = draw.constant((out, channels, kernel, kernel), "float32", -0.5, 0.5)
    same = {"groups": 1, "stride": 1, "dilation": 1, "padding": kernel // 2}
    y = draw.apply("conv", x, weight, **same)  # type: ignore[arg-type]
    for name in ("add", "multiply"):
        if chance() < 0.4:
            y = draw.apply(name, y, draw.constant((out, 1, 1), "float32"))  # type: ignore[arg-type]
    if chance() < 0.5:
        rest = [draw.constant((out,), "float32") for _ in range(3)]
        norm = draw.apply("batch_norm", y, *rest, draw.constant((out,), "float32", 0.5, 1.5))  # type: ignore
        y = draw.apply("item", norm, index=0)  # type: ignore[arg-type]
    if chance() < 0.4:
        y = draw.apply("add", y, x) or y  # type: ignore[arg-type]
    if chance() < 0.6:
        draw.apply(draw.rng.choice(["relu", "sigmoid", "tanh"]), y)  # type: ignore[arg-type]


def twins(draw: Draw) -> None:
    """Two equal calls, or two that differ only in their constant."""
    x = _real(draw, 2)
    if x is None:
        return
    own = (draw.type(x).shape[-1], 4)
    first = draw.constant(own, "float32")
    second = first if draw.rng.random() < 0.4 else draw.constant(own, "float32")
    products = [draw.apply("matmul", x, w) for w in (first, second)]
    draw.apply(draw.rng.choice(["add", "subtract", "maximum"]), *products)  # type: ignore


def projections(draw: Draw) -> None:
    """Several products of one tensor: candidates for one wide product."""
    x = _real(draw, 2)
    if x is None:
        return
    depth = draw.type(x).shape[-1]
    for _ in range(draw.rng.choice([2, 3])):
        columns = draw.rng.choice([4, 4, 8])
        y = draw.apply("matmul", x, draw.constant((depth, columns), "float32"))
        if y is not None and draw.rng.random() < 0.6:
            draw.apply("add", y, draw.constant((columns,), "float32"))


def two_views(draw: Draw) -> None:
    """P3: two views of one tensor; one is read after a call that could overwrite the other."""
    x = draw.pick_float()
    if x is None:
        return
    x = draw.apply("tanh", x)
    a, b = (draw.apply("expand_dims", x, axis=0) for _ in range(2))  # type: ignore[arg-type]
    if b is not None:
        draw.apply("concat", draw.apply("multiply", a, b), b, axis=0)  # type: ignore[arg-type]


def stated_twice(draw: Draw) -> None:
    """P1: a second name of a tensor that lives on while its neighbour is made."""
    x = draw.pick_float()
    if x is None:
        return
    dtype = draw.type(x).dtype
    left = draw.apply("add", x, draw.scalar(0.25, dtype))
    if left is None:
        return
    shape = tuple(
        draw.symbol(s) if isinstance(s, Affine) and draw.rng.random() < 0.3 else s
        for s in draw.type(left).shape
    )
    left = draw.apply("match_cast", left, shape=shape)
    right = draw.apply("add", x, draw.scalar(0.125, dtype))
    draw.apply("add", left, right)  # type: ignore[arg-type]


def many_readers(draw: Draw) -> None:
    """One tensor read by several operators, whose results meet again."""
    x = draw.pick_float()
    readers = [
        draw.apply(draw.rng.choice(["relu", "tanh", "sigmoid", "abs"]), x)
        for _ in range(draw.rng.choice([2, 3, 5]))
    ]
    total = readers[0]
    for reader in readers[1:]:
        total = draw.apply(draw.rng.choice(["add", "multiply", "maximum"]), total, reader)


def partly_used(draw: Draw) -> None:
    """A split of which one part is read, through a tuple of it."""
    x = draw.pick(lambda t: bool(t.shape) and isinstance(t.shape[-1], int) and t.shape[-1] > 2)
    if x is None:
        return
    axis = len(draw.type(x).shape) - 1
    parts = draw.apply("split", x, axis=axis, cuts=(1, int(draw.type(x).shape[axis]) - 1))
    part = draw.apply("item", parts, index=draw.rng.randrange(3))  # type: ignore[arg-type]
    if part is not None and draw.type(part).is_float:
        draw.apply("tanh", part)


def masked(draw: Draw) -> None:
    """Choose by a comparison of exact values, as attention masks do."""
    x = draw.pick(lambda t: t.dtype in ("float32", "int32", "int64") and t.exact)
    y = draw.pick(lambda t: t.dtype == "float32")
    if x is None or y is None:
        return
    kind = draw.rng.choice(["greater", "less_equal", "equal"])
    mask = draw.apply(kind, x, draw.scalar(draw.rng.choice([0, 1]), draw.type(x).dtype))
    if draw.apply("where", mask, y, draw.scalar(-3.0, "float32")) is None:  # type: ignore
        draw.apply("logical_not", mask)  # type: ignore[arg-type]


MOTIFS: tuple[Callable[[Draw], None], ...] = (
    residual, layer_norm, gelu, attention, convolution, convolution, twins, projections,
    two_views, stated_twice, many_readers, partly_used, masked, *REWRITE_MOTIFS,
)  # fmt: skip
