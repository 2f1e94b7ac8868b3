"""Selections, comparisons, clipping and casts."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.lowering.rule import dtype_of

R = relax.op

# Bits that hold every value of the type: significand for floats, magnitude for integers.
_FLOATS = {"float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11)}


def casts_exactly(source: str, target: str) -> bool:
    """Return whether every value of `source` is a value of `target`."""
    if source == target or source == "bool":
        return True
    if source in _FLOATS:
        wide = _FLOATS.get(target, (0, 0))
        return all(a <= b for a, b in zip(_FLOATS[source], wide, strict=True))
    if target in _FLOATS:
        return _magnitude(source) <= _FLOATS[target][0] and target != "float16"
    if target == "bool" or not target.startswith(("int", "uint")):
        return False
    signed = source.startswith("int")
    if signed and not target.startswith("int"):
        return False
    return _magnitude(source) <= _magnitude(target)


def _magnitude(dtype: str) -> int:
    """Return how many bits of magnitude an integer type has."""
    bits = int("".join(c for c in dtype if c.isdigit()) or 0)
    return bits - dtype.startswith("int")


def _cast_once(m: Match) -> relax.Expr:
    inner = m.producer(m.root.args[0], "astype")
    if inner is None:
        raise Declined("")
    source, middle, target = dtype_of(inner.args[0]), dtype_of(inner), dtype_of(m.root)
    if not casts_exactly(source, middle):
        raise Declined(f"{middle} does not hold every {source}")
    if source == target:
        return inner.args[0]
    return m.emit(R.astype(inner.args[0], target))


def _is_boolean(m: Match) -> str | None:
    return None if dtype_of(m["x"]) == "bool" else ""


def _bounds(call: relax.Expr) -> tuple[float, float]:
    low, high = (float(getattr(bound, "value", bound)) for bound in call.args[1:3])
    return low, high


def _clip(m: Match, x: relax.Expr, low: float, high: float) -> relax.Expr:
    if math.isnan(low) or math.isnan(high) or low > high:
        raise Declined("the bounds cross")
    if dtype_of(m.root).startswith("float"):
        return m.emit(R.clip(x, low, high))
    return m.emit(R.clip(x, int(low), int(high)))


def _clip_of_clip(m: Match) -> relax.Expr:
    inner = m.producer(m.root.args[0], "clip")
    if inner is None:
        raise Declined("")
    (a, b), (c, d) = _bounds(inner), _bounds(m.root)
    if a > b or c > d:
        raise Declined("the bounds cross")
    return _clip(m, inner.args[0], min(max(a, c), d), max(min(b, d), c))


def _clip_of_relu(m: Match) -> relax.Expr:
    low, high = _bounds(m.root)
    if low > 0 or high < 0:
        raise Declined("the bounds do not hold zero")
    return _clip(m, m["x"], 0.0, high)


def _clip_of_bounds(m: Match) -> relax.Expr:
    low, high = m.number("a"), m.number("b")
    if low is None or high is None:
        raise Declined("the bounds are not one number each")
    return _clip(m, m["x"], low, high)


def _relu_capped(m: Match) -> relax.Expr:
    return _clip(m, m["x"], 0.0, m.number("k") or 0.0)


def _chosen(m: Match) -> relax.Expr:
    """Return the operand that a constant condition chooses everywhere."""
    condition = m.number("a")
    if condition is None:
        values = np.unique(m.array("a"))
        raise Declined("" if len(values) > 1 else "the condition is empty")
    return m["x"] if condition else m["y"]


_GONE = "always: one operator less"
_EXACT, _ZERO, _NONFINITE = Ieee.EXACT, Ieee.ZERO_SIGN, Ieee.NONFINITE

SELECTION = Family(
    "selection",
    "choices that are known, comparisons turned round, bounds and casts merged",
    (
        Rule(
            *("where_known", "where(a, x, y) = x if a else y", _EXACT, _GONE, "fib"),
            pattern="where(a, x, y)",
            rewrite=_chosen,
        ),
        Rule("where_same", "where(u, x, x) = x", _EXACT, _GONE, "fib"),
        Rule("where_not", "where(not u, x, y) = where(u, y, x)", _EXACT, _GONE, "fib"),
        Rule(
            "where_of_where", "where(u, where(u, x, z), y) = where(u, x, y)", _EXACT, _GONE, "fib"
        ),
        Rule(
            "where_or_where", "where(u, x, where(u, z, y)) = where(u, x, y)", _EXACT, _GONE, "fib"
        ),
        Rule("not_equal", "not (x == y) = x != y", _EXACT, _GONE, "b"),
        Rule("not_unequal", "not (x != y) = x == y", _EXACT, _GONE, "b"),
        Rule("not_less", "not (x < y) = x >= y", _NONFINITE, _GONE, "b"),
        Rule("not_greater", "not (x > y) = x <= y", _NONFINITE, _GONE, "b"),
        Rule("not_less_equal", "not (x <= y) = x > y", _NONFINITE, _GONE, "b"),
        Rule("not_greater_equal", "not (x >= y) = x < y", _NONFINITE, _GONE, "b"),
        Rule("not_both", "(not x) and (not y) = not (x or y)", _EXACT, _GONE, "b"),
        Rule("not_either", "(not x) or (not y) = not (x and y)", _EXACT, _GONE, "b"),
        Rule(
            *("cast_once", "cast(cast(x)) = cast(x)", _EXACT),
            *("where the first type holds every value of x", "fi"),
            pattern="cast(cast(...))",
            rewrite=_cast_once,
        ),
        Rule(
            *("cast_is_not_zero", "cast(x) != 0 = x", _EXACT, "where x is a boolean", "b"),
            pattern="cast(x) != 0",
            check=_is_boolean,
        ),
        Rule(
            *("cast_is_zero", "cast(x) == 0 = not x", _EXACT, "where x is a boolean", "b"),
            pattern="cast(x) == 0",
            check=_is_boolean,
        ),
        Rule(
            *("clip_of_clip", "clip(clip(x)) = clip(x)", _ZERO, _GONE, "fi"),
            pattern="clip(clip(...))",
            rewrite=_clip_of_clip,
        ),
        Rule(
            *("clip_of_relu", "clip(relu(x)) = clip(x, 0, high)", _ZERO, _GONE, "f"),
            pattern="clip(relu(x))",
            rewrite=_clip_of_relu,
        ),
        Rule(
            *("relu_capped", "min(relu(x), k) = clip(x, 0, k)", _ZERO, _GONE, "f"),
            rewrite=_relu_capped,
        ),
        Rule(
            *("clip_by_constants", "min(max(x, a), b) = clip(x, a, b)", _ZERO, _GONE, "f"),
            rewrite=_clip_of_bounds,
        ),
        Rule(
            *("clip_from_above", "max(min(x, b), a) = clip(x, a, b)", _ZERO, _GONE, "f"),
            rewrite=_clip_of_bounds,
        ),
    ),
)
