"""Gamma functions, erfc, erfinv, and the next number: elementwise, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from frontends.computations.not_a_number import is_nan
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter

# Lanczos' coefficients for g = 7 (P. Godfrey, 2001): gamma to 15 digits.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip

# B(2k) / 2k of digamma's asymptotic series (Abramowitz and Stegun, 6.3.18).
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_LARGE = 8  # from here on the series has float64's precision

# M. Giles, "Approximating the erfinv function" (2010), single precision: near 0, near +-1.
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# numerators and denominators of erfc, from 0.46875 to 4 and beyond.
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)  # fmt: skip
_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip


def _const(value: float) -> Any:
    return tirx.const(value, "float64")


def _named(value: Any, use: Callable[[Any], Any]) -> Any:
    """Return `use(value)` with the value written once, however often it is used."""
    name = tirx.Var("value", "float64")
    return tirx.Let(name, value, use(name))


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """Evaluate by Horner's rule, the highest power first."""
    result: Any = _const(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _const(coefficient)
    return result


def _from_nearest_integer(x: Any) -> Any:
    """The period of sin and cos of pi * x taken off: the product would lose it for large x."""
    return x - tirx.floor(x + _const(0.5))


def _is_pole(x: Any) -> Any:
    return tirx.all(x <= _const(0), x == tirx.floor(x))


def _lgamma_positive(x: Any) -> Any:
    """log(gamma(x)) for x >= 1/2."""
    z = x - _const(1)
    series: Any = _const(_LANCZOS[0])
    for k, coefficient in enumerate(_LANCZOS[1:], 1):
        series = series + _const(coefficient) / (z + _const(k))
    t = z + _const(7.5)
    power = (z + _const(0.5)) * tirx.log(t) - t
    return _const(0.5 * math.log(2 * math.pi)) + power + tirx.log(series)


def _lgamma(x: Any) -> Any:
    """log(|gamma(x)|): infinite at 0, -1, -2, ..., and by reflection below 1/2."""
    reflected = x < _const(0.5)
    sine = tirx.sin(_const(math.pi) * tirx.abs(_from_nearest_integer(x)))
    infinite = tirx.any(_is_pole(x), tirx.isinf(x))

    def result(positive: Any) -> Any:
        below = _const(math.log(math.pi)) - tirx.log(sine) - positive
        return tirx.Select(infinite, _const(math.inf), tirx.Select(reflected, below, positive))

    above = tirx.Select(reflected, _const(1) - x, x)
    return _named(above, lambda y: _named(_lgamma_positive(y), result))


def _digamma_positive(x: Any) -> Any:
    """The derivative of log(gamma(x)) for x >= 1/2: psi(x) = psi(x + 1) - 1 / x up to `_LARGE`."""
    small = x < _const(_LARGE)
    steps: Any = _const(0)
    for k in range(_LARGE):
        step = x + _const(k)
        steps = steps + tirx.Select(step < _const(_LARGE), _const(1) / step, _const(0))

    def series(y: Any) -> Any:
        tail = _named(_const(1) / (y * y), lambda s: _polynomial((*_BERNOULLI[::-1], 0.0), s))
        return tirx.log(y) - _const(0.5) / y - tail - steps

    return _named(tirx.Select(small, x + tirx.ceil(_const(_LARGE) - x), x), series)


def _digamma(x: Any) -> Any:
    """The derivative of log(gamma(x)): -inf at 0, inf at -0.0, NaN at negative integers."""
    reflected = x < _const(0.5)

    def result(positive: Any) -> Any:
        def below(angle: Any) -> Any:
            return positive - _const(math.pi) * tirx.cos(angle) / tirx.sin(angle)

        mirrored = _named(_const(math.pi) * _from_nearest_integer(x), below)
        found = tirx.Select(reflected, mirrored, positive)
        found = tirx.Select(_is_pole(x), _const(math.nan), found)
        # -1 / x has the sign that the pole at either zero has.
        found = tirx.Select(x == _const(0), _const(-1) / x, found)
        return tirx.Select(x == _const(math.inf), x, found)

    above = tirx.Select(reflected, _const(1) - x, x)
    return _named(above, lambda y: _named(_digamma_positive(y), result))


def _erfinv(x: Any) -> Any:
    """The number whose erf is x: infinite at +-1, NaN beyond."""

    def guess(w: Any) -> Any:
        central = _polynomial(_CENTRAL, w - _const(2.5))
        tail = _named(tirx.sqrt(w) - _const(3), lambda t: _polynomial(_TAIL, t))
        return tirx.Select(w < _const(5), central, tail) * x

    def step(y: Any) -> Any:  # Newton's: each doubles the digits
        slope = _const(2 / math.sqrt(math.pi)) * tirx.exp(-y * y)
        return y - (tirx.erf(y) - x) / slope

    def result(y: Any) -> Any:
        return tirx.Select(tirx.abs(x) == _const(1), x * _const(math.inf), y)

    first = _named(-tirx.log((_const(1) - x) * (_const(1) + x)), guess)
    return _named(first, lambda y: _named(step(y), lambda z: _named(step(z), result)))


def _erfc(x: Any) -> Any:
    """1 - erf(x), to as many digits where it is small."""

    def outer(y: Any) -> Any:  # of y = |x|, from 0.46875 on
        far = _named(_const(1) / (y * y), lambda s: s * _ratio(_FAR, s))
        far = (_const(1 / math.sqrt(math.pi)) - far) / y
        return tirx.exp(-y * y) * tirx.Select(y <= _const(4), _ratio(_MIDDLE, y), far)

    def result(tail: Any) -> Any:
        wide = tirx.Select(x < _const(0), _const(2) - tail, tail)
        return tirx.Select(tirx.abs(x) <= _const(0.46875), _const(1) - tirx.erf(x), wide)

    return _named(tirx.abs(x), lambda y: _named(outer(y), result))


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    numerator, denominator = polynomials
    return _polynomial(numerator, x) / _polynomial(denominator, x)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "aten.lgamma.default": _lgamma,
    "aten.digamma.default": _digamma,
    "aten.erfc.default": _erfc,
    "aten.erfinv.default": _erfinv,
}


def _register(target: str, function: Callable[[Any], Any]) -> None:
    @converter(target)
    def convert(b: GraphBuilder, x: Value) -> relax.Expr:
        def compute(t: te.Tensor) -> te.Tensor:
            return te.compute(
                t.shape, lambda *at: _named(t(*at), function), name=target.split(".")[1]
            )

        return b.tensor(b.te(compute, b.tensor(b.tensor(x, b.dtype), "float64")), b.dtype)


for _target, _function in _FUNCTIONS.items():
    _register(_target, _function)


@converter("aten.nextafter.default")
def nextafter(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The number next to x towards y: the bits of a float count in the order of its size."""
    if b.dtype not in ("float32", "float64"):
        raise b.unsupported(f"numbers of {b.dtype}")
    bits = b.dtype.replace("float", "int")
    operands = (b.broadcast(operand, b.result_shape) for operand in b.operands(x, y))

    def compute(start: te.Tensor, goal: te.Tensor) -> te.Tensor:
        def following(*at: Any) -> Any:
            a, c = start(*at), goal(*at)
            one, zero = tirx.const(1, bits), tirx.const(0, b.dtype)
            count = tirx.reinterpret(bits, a)
            grows = tirx.any(tirx.all(a < c, a > zero), tirx.all(a > c, a < zero))
            moved = tirx.reinterpret(b.dtype, count + tirx.Select(grows, one, -one))
            least = tirx.reinterpret(b.dtype, one)  # the smallest subnormal
            moved = tirx.Select(a == zero, tirx.Select(c > zero, least, -least), moved)
            moved = tirx.Select(a == c, c, moved)
            return tirx.Select(tirx.any(is_nan(a), is_nan(c)), tirx.const(math.nan, b.dtype), moved)

        return te.compute(start.shape, following, name="nextafter")

    return b.te(compute, *operands)
