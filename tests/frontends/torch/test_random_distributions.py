"""Random operators: their distributions, of many numbers drawn once."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda, run  # noqa: E402

N = 20_000
EMPTY = torch.empty(N, dtype=torch.float64)
# (what draws, its distribution function)
CONTINUOUS = {
    "exponential": (lambda x: x.exponential_(2.0), lambda v: 1 - np.exp(-2 * v)),
    "cauchy": (lambda x: x.cauchy_(1.0, 3.0), lambda v: 0.5 + np.arctan((v - 1) / 3) / np.pi),
    "log_normal": (
        lambda x: x.log_normal_(0.5, 0.25),
        lambda v: _normal_distribution((np.log(v) - 0.5) / 0.25),
    ),
    "normal of numbers": (
        lambda x: torch.normal(2.0, 3.0, (N,), dtype=torch.float64),
        lambda v: _normal_distribution((v - 2) / 3),
    ),
    "normal of tensors": (
        lambda x: torch.normal(torch.full((N,), 2.0), torch.full((N,), 3.0)).double(),
        lambda v: _normal_distribution((v - 2) / 3),
    ),
}


def _normal_distribution(z):
    return np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(z)


def draw_all(*functions):
    """Import all in one module; return what each draws."""
    module = Lambda(lambda x: [function(x.clone()) for function in functions])
    return run(import_torch(module, (EMPTY,)), EMPTY)


def test_continuous_distributions_pass_kolmogorovs_test():
    drawn = draw_all(*(draw for draw, _ in CONTINUOUS.values()))
    for (name, (_, distribution)), values in zip(CONTINUOUS.items(), drawn, strict=True):
        steps = np.arange(N) / N
        distance = np.abs(distribution(np.sort(values)) - steps).max()
        assert distance < 1.95 / math.sqrt(N) + 1 / N, name  # passed by all but 1 in 1,000


def test_discrete_distributions_have_their_chances():
    rates = (0.0, 0.3, 9.9, 10.0, 40.0, 1e4)
    functions = [lambda x, rate=rate: torch.poisson(torch.full_like(x, rate)) for rate in rates]
    *counts, trials = draw_all(*functions, lambda x: x.geometric_(0.3))
    for rate, values in zip(rates, counts, strict=True):
        assert (values == np.floor(values)).all() and (values >= 0).all()
        assert abs(values.mean() - rate) <= 4 * math.sqrt(rate / N), rate
        assert abs(values.var() - rate) <= 4 * rate * math.sqrt(2 / N) + 0.02 * rate**0.5, rate
    for k in range(25, 56):  # each number's share, where numbers are rejected
        chance = math.exp(-40 + k * math.log(40) - math.lgamma(k + 1))
        share = (counts[4] == k).mean()
        assert abs(share - chance) <= 4.5 * math.sqrt(chance / N), k
    for k in range(1, 6):
        chance = 0.3 * 0.7 ** (k - 1)
        assert abs((trials == k).mean() - chance) <= 4 * math.sqrt(chance / N)


def test_classes_without_replacement_are_distinct_and_likely_ones_come_first():
    weights = torch.tensor([1.0, 0.0, 6.0, 3.0]).expand(N, 4)
    module = Lambda(lambda x: [torch.multinomial(x, 3)])
    (drawn,) = run(import_torch(module, (weights.contiguous(),)), weights.contiguous())
    assert drawn.shape == (N, 3) and (np.sort(drawn, 1) == [0, 2, 3]).all()
    for place, chance in ((0, 0.1), (2, 0.6), (3, 0.3)):
        assert abs((drawn[:, 0] == place).mean() - chance) < 4 * math.sqrt(chance / N)


def test_parameters_out_of_range_are_told():
    """Among them infinity, NaN, and weights of which none is above zero."""
    draw = torch.multinomial
    inf = float("inf")
    for function, bad, message in (
        (torch.poisson, [-1.0, 2.0], "expected rate to be non-negative"),
        (lambda std: torch.normal(torch.zeros(2), std), [1.0, -2.0], "elements of std >= 0"),
        (torch.bernoulli, [0.5, 2.0], "p_in >= 0"),
        (torch.bernoulli, [0.5, float("nan")], "p_in >= 0"),
        (lambda w: draw(w, 1), [-0.5, 0.5], "element < 0"),
        (lambda w: draw(w, 2), [inf, 0.5], "`inf`"),
        (lambda w: draw(w, 4, replacement=True), [0.0, 0.0], "sum of probabilities"),
    ):
        fine = torch.tensor([0.5, 1.0])
        model = import_torch(Lambda(lambda x, f=function: [f(x)]), (fine,))
        assert run(model, fine)[0].shape == function(fine).shape
        with pytest.raises(Exception, match=message):
            run(model, torch.tensor(bad))
