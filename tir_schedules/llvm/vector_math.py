"""Elementary float32 functions of scalars and vectors, as polynomials.

TVM lowers exp, tanh, erf and log on LLVM to scalar libm calls, even of a vector. The expressions
here use only arithmetic, comparisons, selects and bit patterns. NaN propagates, and results
overflow to infinity and underflow through denormals to zero as in C.

Polynomials for exp, log, small tanh and sinh: S. Moshier, Cephes mathematical library (expf.c,
logf.c, exp2f.c, tanhf.c, sinhf.c). erf(x) / x is a rational minimax fit in x^2 on |x| <= 3.93.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import DataType, tirx
from tvm.ir import Call, Op
from tvm.tirx import Expr, FloatImm

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_EXP2 = (
    1.535336188319500e-4,
    1.339887440266574e-3,
    9.618437357674640e-3,
    5.550332471162809e-2,
    2.402264791363012e-1,
    6.931472028550421e-1,
    1.0,
)
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
_SINH = (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)
_ERF_P = (2.04190181e-06, 0.000284803641, 0.00377960436, 0.0527902446, 0.190784385, 1.12837915)
_ERF_Q = (3.80031022e-05, 0.00116520268, 0.0149974278, 0.114257648, 0.502410979, 1.0)
# 1.5 * 2^23: adding it rounds a small float to an integer held in the low bits.
_ROUND = 12582912.0
_ROUND_BITS = 0x4B400000
# Adding this leaves the integer's biased form: shifted left, it is an exponent.
_ROUND_BIASED = _ROUND + 127
_LARGEST = (2.0 - 2.0**-23) * 2.0**127
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _f(value: float) -> FloatImm:
    return FloatImm("float32", value)


def _i(value: int) -> Expr:
    return tirx.const(value, "int32")


def _lanes(x: Expr) -> int:
    return int(DataType(str(x.ty)).lanes)


def _element(x: Expr) -> str:
    return str(DataType(str(x.ty)).with_lanes(1))


def _as(dtype: str, like: Expr) -> str:
    """Return the type of as many elements as `like` has."""
    return str(DataType(dtype).with_lanes(_lanes(like)))


def _bits(x: Expr) -> Expr:
    return tirx.reinterpret(_as("int32", x), x)


def _float(bits: Expr) -> Expr:
    return tirx.reinterpret(_as("float32", bits), bits)


def _select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """Select lane by lane; a scalar stands for a vector of it."""
    lanes = _lanes(condition)
    widened = [x if _lanes(x) == lanes else tirx.Broadcast(x, lanes) for x in (yes, no)]
    return tirx.Select(condition, *widened)


def _let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Bind `value`, so that it is computed once however often `body` uses it.

    An expression that holds a binding must never occur twice: TVM's simplifier takes the second
    occurrence of its variable for a contradiction.
    """
    var = tirx.Var("v", str(value.ty))
    return tirx.Let(var, value, body(var))


def _horner(coefficients: Sequence[float], x: Expr) -> Expr:
    value: Expr = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _f(coefficient)
    return value


def _power_of_two(exponent: Expr) -> Expr:
    return _float((exponent + _i(127)) << _i(23))


def _scale_in_low_bits(rounded: Expr) -> Expr:
    """Return 2^n of a sum n + `_ROUND_BIASED`; 0 where n is below -126."""
    return _float(_bits(rounded) << _i(23))


def _paired(coefficients: Sequence[float], x: Expr, square: Expr) -> Expr:
    """Return a polynomial of an even number of coefficients, in half the latency of `_horner`.

    Two terms a step, each pair by itself (Estrin 1960). In a kernel's epilogue the sums of one tile
    are all that is there to do at a time, and what bounds them is how long one takes.
    """
    high, low = coefficients[::2], coefficients[1::2]
    value: Expr | None = None
    for a, b in zip(high, low, strict=True):
        pair = x * _f(a) + _f(b)
        value = pair if value is None else value * square + pair
    assert value is not None, "a polynomial has coefficients"
    return value


def _small_exp(r: Expr) -> Expr:
    """Return e^r for |r| <= log(2) / 2."""
    return _let(r * r, lambda square: _paired(_EXP, r, square) * square + r + _f(1.0))


def _less_powers_of_two(x: Expr, n: Expr, sign: int = 1) -> Expr:
    """Return `sign` x - n log(2), exact to the last place though n log(2) is not."""
    high = x - n * _f(_LN2_HIGH) if sign > 0 else n * _f(-_LN2_HIGH) - x
    return high - n * _f(_LN2_LOW)


def _scaled_exp(shifted: Expr, reduced: Callable[[Expr], Expr]) -> Expr:
    """Return 2^n * exp(r) for n = round(...) held in `shifted` and r = reduced(n).

    The scale is applied in two halves, so that the result passes through denormals and
    overflows to infinity by itself.
    """

    def with_parts(t: Expr) -> Expr:
        def with_r(r: Expr) -> Expr:
            mantissa = _small_exp(r)

            def with_n(n: Expr) -> Expr:
                half = n >> _i(1)
                return mantissa * _power_of_two(half) * _power_of_two(n - half)

            return _let(_bits(t) - _i(_ROUND_BITS), with_n)

        return _let(reduced(t - _f(_ROUND)), with_r)

    return _let(shifted, with_parts)


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """Clamp; NaN stays NaN because both comparisons are false for it."""

    def above(v: Expr) -> Expr:
        return _select(v < _f(low), _f(low), v)

    # One after the other: each select is one instruction of its own, nested ones are four.
    return _let(x, lambda v: _let(_select(v > _f(high), _f(high), v), above))


def exp(x: Expr) -> Expr:
    """Return e^x, error at most 2 ulp."""
    return _let(
        _clamp(x, -104.0, 89.0),
        lambda c: _scaled_exp(
            c * _f(1.0 / math.log(2.0)) + _f(_ROUND), lambda n: _less_powers_of_two(c, n)
        ),
    )


def _normal_exp(x: Expr, sign: int = 1) -> Expr:
    """Return e^y of y = `sign` x from -88 to 88.7, or NaN; 0 where denormal, infinity from 88.4 on.

    The scale is made at once, where `exp` takes two halves: about a third fewer operations.
    """

    def with_x(c: Expr) -> Expr:
        def with_shifted(t: Expr) -> Expr:
            return _let(
                t - _f(_ROUND_BIASED),
                lambda n: _let(
                    _less_powers_of_two(c, n, sign),
                    lambda r: _small_exp(r) * _scale_in_low_bits(t),
                ),
            )

        return _let(c * _f(sign / math.log(2.0)) + _f(_ROUND_BIASED), with_shifted)

    return _let(x, with_x)


def exp2(x: Expr) -> Expr:
    """Return 2^x."""
    return _let(
        _clamp(x, -151.0, 129.0),
        lambda c: _scaled_exp(c + _f(_ROUND), lambda n: (c - n) * _f(math.log(2.0))),
    )


def exp2_of_negative(x: Expr) -> Expr:
    """Return 2^x for x <= 0, in about half the operations of `exp2`; 0 where it is denormal.

    NaN propagates.
    """

    def with_x(v: Expr) -> Expr:
        def with_shifted(t: Expr) -> Expr:
            reduced = v - (t - _f(_ROUND_BIASED))
            return _let(reduced, lambda r: _horner(_EXP2, r) * _scale_in_low_bits(t))

        return _let(v + _f(_ROUND_BIASED), with_shifted)

    return _let(_select(x < _f(-127.0), _f(-127.0), x), with_x)


def _exp2(x: Expr) -> Expr:
    """Return 2^x; where x says by `min(..., 0)` that it is not above 0, as `exp2_of_negative`."""
    if isinstance(x, tirx.Min):
        bound = x.b.value if isinstance(x.b, tirx.Broadcast) else x.b
        if isinstance(bound, FloatImm) and bound.value == 0.0:
            return exp2_of_negative(x.a)
    return exp2(x)


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + e^-x); 0 below -88.4, where it is denormal."""
    return _f(1.0) / (_normal_exp(_clamp(x, -88.5, 88.0), -1) + _f(1.0))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent: a polynomial near 0, 1 - 2 / (e^2|x| + 1) elsewhere."""

    def with_x(v: Expr) -> Expr:
        def with_square(z: Expr) -> Expr:
            small = _horner(_TANH, z) * z * v + v
            size = _let(tirx.abs(v), lambda a: _select(a > _f(10.0), _f(10.0), a))
            signed = _let(
                _f(1.0) - _f(2.0) / (_normal_exp(size * _f(2.0)) + _f(1.0)),
                lambda large: _select(v < _f(0.0), _f(0.0) - large, large),
            )
            return _select(z < _f(0.390625), small, signed)

        return _let(v * v, with_square)

    return _let(x, with_x)


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine: h h / 2 + 1 / (2 h h) for h = e^(|x| / 2), error to 4 ulp."""
    return _let(_root_of_exp(x), lambda h: _f(0.5) * h * h + _f(0.5) / h / h)


def sinh(x: Expr) -> Expr:
    """Return the hyperbolic sine: a polynomial where |x| < 1, as `cosh` elsewhere."""

    def with_x(v: Expr) -> Expr:
        small = _let(v * v, lambda z: _horner(_SINH, z) * z * v + v)
        size = _let(_root_of_exp(v), lambda h: _f(0.5) * h * h - _f(0.5) / h / h)
        large = _let(size, lambda s: _select(v < _f(0.0), _f(0.0) - s, s))
        return _select(tirx.abs(v) < _f(1.0), small, large)

    return _let(x, with_x)


def _root_of_exp(x: Expr) -> Expr:
    """Return e^(|x| / 2), whose square overflows only where sinh and cosh do."""
    return exp(tirx.abs(x) * _f(0.5))


def erf(x: Expr) -> Expr:
    """Return the error function, absolute error about 1e-7."""

    def with_x(v: Expr) -> Expr:
        inner = _let(v * v, lambda z: v * _horner(_ERF_P, z) / _horner(_ERF_Q, z))
        above = _select(v > _f(3.9), _f(1.0), inner)
        return _select(v < _f(-3.9), _f(-1.0), above)

    return _let(_clamp(x, -3.93, 3.93), with_x)


def log(x: Expr) -> Expr:
    """Return the natural logarithm; -inf at 0, NaN below."""

    def with_x(v: Expr) -> Expr:
        tiny = v < _f(2.0**-126)

        def with_bits(bits: Expr) -> Expr:
            # The exponent is taken so that the mantissa lies in [sqrt(1/2), sqrt(2)).
            offset = _i(0x3F3504F3)

            def with_exponent(e: Expr) -> Expr:
                mantissa = _float(bits - (e << _i(23)))
                power = tirx.Cast(_as("float32", e), e) - _select(tiny, _f(23.0), _f(0.0))
                return _let(
                    mantissa - _f(1.0),
                    lambda m: _let(
                        m * m,
                        lambda z: (
                            m
                            + (
                                (_horner(_LOG, m) * m * z + power * _f(_LN2_LOW))
                                - z * _f(0.5)
                                + power * _f(_LN2_HIGH)
                            )
                        ),
                    ),
                )

            return _let((bits - offset) >> _i(23), with_exponent)

        finite = _let(_bits(_select(tiny, v * _f(2.0**23), v)), with_bits)
        infinity = _float(_i(0x7F800000))
        nan = _float(_i(0x7FC00000))
        ordinary = _select(v < infinity, finite, v)  # +inf and NaN pass through
        negative = _select(v < _f(0.0), nan, _f(0.0) - infinity)
        return _select(v <= _f(0.0), negative, ordinary)

    return _let(x, with_x)


def log1p(x: Expr) -> Expr:
    """Return log(1 + x), corrected for the rounding of 1 + x (Kahan)."""

    def with_x(v: Expr) -> Expr:
        def with_sum(u: Expr) -> Expr:
            corrected = log(u) * (v / (u - _f(1.0)))
            plain = _select(u > _f(3e38), v, corrected)
            infinite = _select(v > _f(3e38), log(v), plain)
            return _select(tirx.all(u <= _f(1.0), u >= _f(1.0)), v, infinite)

        return _let(v + _f(1.0), with_sum)

    return _let(x, with_x)


def _power(base: Expr, exponent: Expr) -> Expr | None:
    """Return base^exponent for the constant exponents that models use, None for others."""
    if isinstance(exponent, tirx.Broadcast):
        exponent = exponent.value
    if not isinstance(exponent, tirx.FloatImm | tirx.IntImm):
        return None
    value = float(exponent.value)
    if value == 0.5:
        return _let(base, _root)
    if value == -0.5:
        return _f(1.0) / _let(base, _root)
    if value == -1.0:
        return _f(1.0) / base
    if value in (1.0, 2.0, 3.0, 4.0):
        return _let(base, lambda b: math.prod([b] * (int(value) - 1), start=b))
    return None


def _root(x: Expr) -> Expr:
    """Return x^0.5: the square root, but 0 of -0 and infinity of -infinity."""
    infinity = _float(_i(0x7F800000))
    root = _select(
        tirx.any(x < _f(0.0), x > _f(0.0)), tirx.sqrt(x), x * x
    )  # of 0 and NaN, the square
    return _select(x < _f(-_LARGEST), infinity, root)


def _isnan(x: Expr) -> Expr:
    """Tell by its bits whether x is NaN; TVM tests each lane of a vector by itself."""
    kind, magnitude, infinity = _NAN_BITS[_element(x)]
    bits = tirx.reinterpret(_as(kind, x), x) & tirx.const(magnitude, kind)
    return bits > tirx.const(infinity, kind)


# Integer type, mask of all bits but the sign, and the bits of infinity: NaN is what lies above.
_NAN_BITS = {
    "float32": ("int32", 0x7FFF_FFFF, 0x7F80_0000),
    "float64": ("int64", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
}
_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "exp": exp,
    "exp2": _exp2,
    "exp10": lambda x: exp(x * _f(math.log(10.0))),
    "sigmoid": sigmoid,
    "tanh": tanh,
    "sinh": sinh,
    "cosh": cosh,
    "erf": erf,
    "log": log,
    "log2": lambda x: log(x) * _f(1.0 / math.log(2.0)),
    "log10": lambda x: log(x) * _f(1.0 / math.log(10.0)),
    "log1p": log1p,
}


# LLVM rounds half to even in vectors, too; TVM's vectorizer would take lane by lane.
Op.get("tirx.nearbyint").set_attr("TVectorizable", True)


def written_out(call: Call) -> Expr:
    """Return a call of an elementary function as an expression, or the call if there is none.

    Types but float32 and functions without an expression here (sin, general pow, ...) stay calls.
    """
    name = getattr(call.op, "name", "").rpartition(".")[2]
    if name == "isnan" and _element(call.args[0]) in _NAN_BITS:
        return _isnan(call.args[0])
    if name in _UNARY and _element(call) == "float32":
        return _UNARY[name](call.args[0])
    power = _power(*call.args) if name == "pow" and _element(call) == "float32" else None
    return call if power is None else power
