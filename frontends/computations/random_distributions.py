"""Random numbers of other distributions, made of uniform ones (`random_numbers`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    kernel,
    parallel,
    product,
    when,
)
from frontends.computations.random_numbers import (
    Key,
    draw,
    inputs_of,
    inside_unit,
    key_of,
    philox,
    standard_normal,
)

_SMALL = 10.0  # a rate from which on rejection takes less than counting up
_WIDE = "float64"


def exponential(dims: Sequence[Any], dtype: str, rate: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims`, exponentially distributed; none of them is 0 in float64."""
    return draw(dims, dtype, seed, lambda words: -tirx.log(inside_unit(*words[:2])) / rate)


def geometric(dims: Sequence[Any], dtype: str, p: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims`: the trials up to the first success, which has chance p."""
    scale = math.log1p(-p) if p < 1 else -math.inf

    def value(words: list[Any]) -> Any:
        if p >= 1:
            return tirx.const(1.0, _WIDE)
        return tirx.ceil(tirx.log(inside_unit(*words[:2])) / scale)

    return draw(dims, dtype, seed, value)


def cauchy(dims: Sequence[Any], dtype: str, median: float, sigma: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims`, of Cauchy's distribution."""

    def value(words: list[Any]) -> Any:
        return median + sigma * tirx.tan(math.pi * (inside_unit(*words[:2]) - 0.5))

    return draw(dims, dtype, seed, value)


def log_normal(dims: Sequence[Any], dtype: str, mean: float, std: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims` whose logarithms are normally distributed."""
    return draw(dims, dtype, seed, lambda words: tirx.exp(mean + std * standard_normal(words)))


def poisson(rates: te.Tensor, dtype: str, seed: Key) -> te.Tensor:
    """Return a number of events for each rate, by Poisson's distribution.

    Small rates count up to where the sum of probabilities passes a uniform number. Others reject
    (Hoermann, "The transformed rejection method for generating Poisson random variables",
    Insurance: Mathematics and Economics 12, 1993: PTRS).

    Args:
        rates: (n,), none of them negative.
        dtype: Of the result, (n,).
        seed: The key.
    """
    n = rates.shape[0]

    def body(ins: list[Any], outs: list[Any]) -> None:
        key = key_of(ins, seed)
        with parallel(product([n])) as place:
            rate = Scalar(as_dtype(ins[0][place], _WIDE), _WIDE)
            found = Scalar(0.0, _WIDE)
            with T.If(rate() < _SMALL):
                with T.Then():
                    _count_up(rate, found, inside_unit(*philox(place, key)[:2]))
                with T.Else():
                    _reject(rate, found, place, key)
            outs[0][place] = as_dtype(found(), dtype)

    return kernel([rates, *inputs_of(seed)], [((n,), dtype)], body, "poisson")[0]


def _count_up(rate: Scalar, found: Scalar, uniform: Any) -> None:
    rest = Scalar(uniform, _WIDE)
    chance = Scalar(tirx.exp(-rate()), _WIDE)
    # Past 200 events a rate below 10 has no chance left in float64: rounding ends there.
    with T.While(tirx.all(rest() > chance(), found() < 200.0)):
        rest.set(rest() - chance())
        found.set(found() + 1.0)
        chance.set(chance() * rate() / found())


def _reject(rate: Scalar, found: Scalar, place: Any, key: Any) -> None:
    b = Scalar(0.931 + 2.53 * tirx.sqrt(rate()), _WIDE)
    a = Scalar(-0.059 + 0.02483 * b(), _WIDE)
    inverse_alpha = Scalar(1.1239 + 1.1328 / (b() - 3.4), _WIDE)
    likely = Scalar(0.9277 - 3.6224 / (b() - 2.0), _WIDE)
    attempt, searching = Scalar(0), Scalar(1)
    with T.While(searching() == 1):
        words = philox(place, key, attempt())
        u = Scalar(inside_unit(*words[:2]) - 0.5, _WIDE)
        v = Scalar(inside_unit(*words[2:]), _WIDE)
        us = Scalar(0.5 - tirx.abs(u()), _WIDE)
        found.set(tirx.floor((2.0 * a() / us() + b()) * u() + rate() + 0.43))
        inside = tirx.all(us() >= 0.07, v() <= likely())
        with when(inside):
            searching.set(0)
        beyond = tirx.any(found() < 0.0, tirx.all(us() < 0.013, v() > us()))
        with when(tirx.all(searching() == 1, tirx.Not(beyond))):
            left = tirx.log(v() * inverse_alpha() / (a() / (us() * us()) + b()))
            right = found() * tirx.log(rate()) - rate() - _log_factorial(found())
            with when(left <= right):
                searching.set(0)
        attempt.set(attempt() + 1)


def _log_factorial(k: Any) -> Any:
    """Return log k! by Stirling's series, seven steps further up, where it is exact to 1e-10."""
    steps: Any = 1.0
    for step in range(1, 8):
        steps = steps * (k + float(step))
    x = k + 8.0
    series = 1 / (12.0 * x) - 1 / (360.0 * x * x * x) + 1 / (1260.0 * x * x * x * x * x)
    half_log = 0.5 * math.log(2.0 * math.pi)
    return (x - 0.5) * tirx.log(x) - x + half_log + series - tirx.log(steps)
