"""Random tensors of distributions other than the uniform: see `random_numbers`."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.computations.random_distributions import (
    cauchy,
    exponential,
    geometric,
    log_normal,
    poisson,
)
from frontends.computations.random_numbers import normal
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.random_numbers import draw_like
from frontends.torch.operators.value_checks import require_between
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten.normal.float_float")
def normal_of_numbers(
    b: GraphBuilder, mean: float, std: float, size: Any, **_options: Any
) -> relax.Expr:
    """A normal distribution."""
    return draw_like(b, normal, mean, std)


@converter("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal_of_tensors(
    b: GraphBuilder, mean: Value, std: Value = 1.0, **_options: Any
) -> relax.Expr:
    """A normal distribution for each element."""
    if not isinstance(std, int | float):
        require_between(b, b.tensor(std), "normal expects all elements of std >= 0.0")
    shift, scale = b.operands(mean, std)
    drawn = b.emit(relax.op.multiply(draw_like(b, normal, 0.0, 1.0), scale))
    return relax.op.add(drawn, shift)


@converter("aten.exponential.default")
def exponential_(b: GraphBuilder, x: Value, lambd: float = 1.0, **_options: Any) -> relax.Expr:
    """An exponential distribution, in the shape of x."""
    return draw_like(b, exponential, lambd)


@converter("aten.geometric.default")
def geometric_(b: GraphBuilder, x: Value, p: float, **_options: Any) -> relax.Expr:
    """The number of trials up to the first success, in the shape of x."""
    return draw_like(b, geometric, p)


@converter("aten.cauchy.default")
def cauchy_(
    b: GraphBuilder, x: Value, median: float = 0.0, sigma: float = 1.0, **_options: Any
) -> relax.Expr:
    """Cauchy's distribution, in the shape of x."""
    return draw_like(b, cauchy, median, sigma)


@converter("aten.log_normal.default")
def log_normal_(
    b: GraphBuilder, x: Value, mean: float = 1.0, std: float = 2.0, **_options: Any
) -> relax.Expr:
    """A distribution whose logarithm is normal, in the shape of x."""
    return draw_like(b, log_normal, mean, std)


@converter("aten.poisson.default")
def poisson_(b: GraphBuilder, x: Value, _generator: Any = None) -> relax.Expr:
    """A number of events for each rate in x."""
    rates, dtype = b.tensor(x), b.dtype
    require_between(b, rates, "invalid Poisson rate, expected rate to be non-negative")
    shape = b.shape(rates)
    flat = b.reshape(rates, [product(shape)])
    drawn = b.te(lambda t, k: poisson(t, dtype, k), flat, b.random_key(), name="poisson")
    return b.reshape(drawn, shape)
