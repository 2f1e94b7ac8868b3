"""Random tensors. The key is fixed when the model is compiled, or an input: see `RandomKeys`.

torch's own generator is another one, so numbers differ from eager; distributions do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, te

from frontends.computations.random_distributions import exponential
from frontends.computations.random_numbers import bernoulli, multinomial, normal, uniform
from frontends.computations.sort import top_k
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.sorting import sorted_places
from frontends.torch.operators.value_checks import require_between
from frontends.torch.registry import converter


@converter("aten.rand.default", "aten.rand_like.default")
def rand(b: GraphBuilder, *_size: Any, **_options: Any) -> relax.Expr:
    """Uniform over [0, 1)."""
    return _uniform(b, 0.0, 1.0, b.dtype)


@converter("aten.randn.default", "aten.randn_like.default")
def randn(b: GraphBuilder, *_size: Any, **_options: Any) -> relax.Expr:
    """The standard normal distribution."""
    return draw_like(b, normal, 0.0, 1.0)


@converter("aten.uniform.default")
def uniform_(
    b: GraphBuilder, x: Value, from_: float = 0.0, to: float = 1.0, **_options: Any
) -> relax.Expr:
    """Uniform over [from, to), in the shape of x."""
    return _uniform(b, from_, to, b.dtype)


@converter("aten.normal_functional.default")
def normal_(
    b: GraphBuilder, x: Value, mean: float = 0.0, std: float = 1.0, **_options: Any
) -> relax.Expr:
    """A normal distribution, in the shape of x."""
    return draw_like(b, normal, mean, std)


@converter("aten.randint.default", "aten.randint_like.default")
def randint(b: GraphBuilder, *bounds: Any, **_options: Any) -> relax.Expr:
    """Integers over [0, high)."""
    return _integers(b, 0, bounds[0] if isinstance(bounds[0], int) else bounds[1])


@converter("aten.randint.low", "aten.randint_like.low_dtype")
def randint_between(b: GraphBuilder, *bounds: Any, **_options: Any) -> relax.Expr:
    """Integers over [low, high)."""
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    return _integers(b, numbers[0], numbers[1])


def _integers(b: GraphBuilder, low: int, high: int) -> relax.Expr:
    drawn = b.emit(relax.op.floor(_uniform(b, low, high, "float64")))
    drawn = b.emit(relax.op.minimum(drawn, relax.const(high - 1, "float64")))
    return b.cast(drawn, b.dtype)


@converter("aten.randperm.default")
def randperm(b: GraphBuilder, n: Any, **_options: Any) -> relax.Expr:
    """The numbers below n in random order: the order of as many random numbers."""
    keys = _uniform(b, 0.0, 1.0, "float64")
    places = sorted_places(b, b.rows(keys, 0), descending=False)
    return b.tensor(b.reshape(places, b.result_shape), b.dtype)


@converter("aten.bernoulli.default", "aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli_(b: GraphBuilder, x: Value, p: Value = None, **_options: Any) -> relax.Expr:
    """1 with a probability: one for all elements, or each element's own."""
    if isinstance(p, int | float):
        return _below(b, p, b.dtype, b.result_shape)
    dtype, key, shape = b.dtype, b.random_key(), b.result_shape
    given = b.tensor(x if p is None else p)
    require_between(b, given, "Expected p_in >= 0 && p_in <= 1", most=1)
    chances = b.broadcast(given, shape)
    return b.te(lambda t, k: bernoulli(t, dtype, k), chances, key, name="bernoulli")


@converter("aten.multinomial.default")
def multinomial_(
    b: GraphBuilder, x: Value, num_samples: int, replacement: bool = False, **_options: Any
) -> relax.Expr:
    """Classes drawn by weights that need not be normalized.

    Without replacement they are those that come first in a race: each takes a time that is
    exponentially distributed, with its weight for the rate.
    """
    weights = b.tensor(x)
    message = "probability tensor contains either `inf`, `nan` or element < 0"
    require_between(b, weights, message, most=float("inf"))
    some = b.emit(relax.op.greater(weights, relax.const(0, weights.ty.dtype)))
    message = "invalid multinomial distribution (sum of probabilities <= 0)"
    require_between(b, b.emit(relax.op.max(b.cast(some, "int8"), axis=-1)), message, least=1)
    if not replacement and num_samples > 1:
        return _first_in_race(b, weights, num_samples)
    logits = b.emit(relax.op.log(weights))
    classes = b.shape(logits)[-1]
    rows = b.reshape(logits, [b.shape(logits)[0] if logits.ty.ndim == 2 else 1, classes])
    drawn = b.te(lambda t, k: multinomial(t, num_samples, "int64", k), rows, b.random_key())
    return b.reshape(drawn, b.result_shape)


def _first_in_race(b: GraphBuilder, weights: relax.Expr, number: int) -> relax.Expr:
    wide = b.tensor(weights, "float64")
    times = _draw(b, exponential, "float64", b.shape(wide), 1.0)
    speeds = b.rows(b.emit(relax.op.divide(wide, times)), wide.ty.ndim - 1)
    _, places = b.parts(b.te(lambda t: top_k(t, number, largest=True), speeds), 2)
    return b.reshape(places, b.result_shape)


@converter("aten.native_dropout.default")
def native_dropout(
    b: GraphBuilder, x: Value, p: float, train: bool | None
) -> tuple[relax.Expr, relax.Expr]:
    """X with elements zeroed with probability p and the rest scaled, and which ones were kept."""
    data = b.tensor(x)
    if train is False or p == 0:
        return data, b.emit(relax.op.full(b.result_shape, relax.const(True, "bool"), "bool"))
    if p == 1:
        kept = b.emit(relax.op.full(b.result_shape, relax.const(False, "bool"), "bool"))
    else:
        kept = _below(b, 1 - p, "bool", b.result_shape)
    return _dropped(b, data, p, kept), kept


def drop(b: GraphBuilder, x: relax.Expr, p: float) -> relax.Expr:
    """Return x with elements zeroed with probability p and the rest scaled by 1 / (1 - p)."""
    kept = None if p == 1 else _below(b, 1 - p, "bool", b.shape(x))
    return _dropped(b, x, p, kept)


def _dropped(b: GraphBuilder, x: relax.Expr, p: float, kept: relax.Expr | None) -> relax.Expr:
    if p == 1 or kept is None:
        return b.emit(relax.op.zeros(relax.ShapeExpr(b.shape(x)), str(x.ty.dtype)))
    scaled = b.emit(relax.op.multiply(x, relax.const(1 / (1 - p), x.ty.dtype)))
    return b.emit(relax.op.where(kept, scaled, relax.const(0, x.ty.dtype)))


def draw_like(
    b: GraphBuilder, distribution: Callable[..., te.Tensor], *parameters: float
) -> relax.Expr:
    """Draw a tensor of the node's result from a distribution.

    Args:
        b: The builder.
        distribution: Takes sizes, a dtype, parameters and a key.
        parameters: Its own.
    """
    return _draw(b, distribution, b.dtype, b.result_shape, *parameters)


def _uniform(b: GraphBuilder, low: float, high: float, dtype: str) -> relax.Expr:
    return _draw(b, uniform, dtype, b.result_shape, low, high)


def _draw(
    b: GraphBuilder,
    distribution: Callable[..., te.Tensor],
    dtype: str,
    shape: list[Size],
    *parameters: float,
) -> relax.Expr:
    """Draw a tensor from a distribution."""
    if 0 in shape:
        return b.emit(relax.op.zeros(relax.ShapeExpr(shape), dtype))
    drawn = b.te(
        lambda k, dims: distribution(dims, dtype, *parameters, k),
        b.random_key(), name=distribution.__name__, dims=shape or [1],
    )  # fmt: skip
    return b.reshape(drawn, shape)


def _below(b: GraphBuilder, probability: float, dtype: str, shape: list[Size]) -> relax.Expr:
    drawn = _draw(b, uniform, "float64", shape, 0.0, 1.0)
    below = b.emit(relax.op.less(drawn, relax.const(probability, "float64")))
    return below if dtype == "bool" else b.cast(below, dtype)


def is_random(target: Any) -> bool:
    """Tell whether an ATen operator draws numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
