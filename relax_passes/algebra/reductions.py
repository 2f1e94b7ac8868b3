"""Reductions commute with what is the same for all they reduce: reduce first, then compute less.

sum(x * y) = sum(x) * y where y has one value along the reduced axes. The last block is the
commutative family of Niu et al., DNNFusion, PLDI 2021, table 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm
from tvm import relax

from relax_passes.algebra.bindings import same_type
from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.lowering.rule import dtype_of, static_shape

R = relax.op


def reduced_axes(call: relax.Expr) -> list[int]:
    """Return the axes that a reduction reduces, counted from 0."""
    rank = call.args[0].ty.ndim
    axes = range(rank) if call.attrs.axis is None else call.attrs.axis
    return sorted({int(axis) % rank for axis in axes})


def _aligned(m: Match, factor: relax.Expr, reduction: relax.Expr) -> relax.Expr:
    """Return `factor`, one value along the reduced axes, in a shape that fits the reduced tensor.

    Raises:
        Declined: If it varies along a reduced axis, or its sizes there are not known.
    """
    rank = reduction.args[0].ty.ndim
    shape = getattr(getattr(factor.ty, "shape", None), "values", None)
    if shape is None:
        raise Declined("the shape of the other operand is not known")
    offset = rank - len(shape)
    inside = [axis - offset for axis in reduced_axes(reduction) if axis >= offset]
    sizes = [getattr(shape[axis], "value", None) for axis in inside]
    if any(size != 1 for size in sizes):
        raise Declined("")
    if reduction.attrs.keepdims or not inside:
        return factor
    return m.emit(R.squeeze(factor, inside))


def _hoist(inner: str) -> Callable[[Match], relax.Expr]:
    """Return the rewrite reduce(x <inner> y) = reduce(x) <inner> y."""

    def rewrite(m: Match) -> relax.Expr:
        op = m.call_named(inner)
        assert op is not None
        for data, factor in (op.args, list(op.args)[::-1]):
            if data.ty.ndim != m.root.args[0].ty.ndim or not same_type(data.ty, m.root.args[0].ty):
                continue
            try:
                other = _aligned(m, factor, m.root)
            except Declined:
                continue
            less = m.emit(_like(m.root, data))
            swapped = data.same_as(op.args[1])
            args = [other, less] if swapped else [less, other]
            if swapped and inner == "divide":
                break
            return m.emit(tvm.ir.Call(op.op, args, op.attrs))
        raise Declined("")

    return rewrite


def _like(reduction: relax.Expr, data: relax.Expr, axes: list[int] | None = None) -> relax.Expr:
    """Return the same reduction of another tensor, over other axes if given."""
    keep = bool(reduction.attrs.keepdims)
    chosen = reduced_axes(reduction) if axes is None else axes
    return REDUCE[str(reduction.op.name)](data, chosen, keep)


REDUCE = {f"relax.{f.__name__}": f for f in (R.sum, R.mean, R.max, R.min, R.prod)}


def _merge(m: Match) -> relax.Expr:
    """Write reduce(reduce(x, s), t) as one reduction."""
    outer = m.root
    inner = m.producer(outer.args[0], m.scope.name_of(outer))
    if inner is None:
        raise Declined("")
    if bool(inner.attrs.keepdims) != bool(outer.attrs.keepdims):
        raise Declined("one reduction keeps its axes, the other does not")
    first = reduced_axes(inner)
    second = reduced_axes(outer)
    if not inner.attrs.keepdims:
        left = [axis for axis in range(inner.args[0].ty.ndim) if axis not in first]
        second = [left[axis] for axis in second]
    return m.emit(_like(outer, inner.args[0], sorted({*first, *second})))


def _times_count(m: Match) -> relax.Expr:
    """Write sum(broadcast(x)) as sum(x) times how often each element was repeated."""
    return _over_broadcast(m, "sum")


def _over_broadcast(m: Match, name: str) -> relax.Expr:
    wide = m.producer(m.root.args[0], "broadcast_to")
    if wide is None:
        raise Declined("")
    source = wide.args[0]
    if source.ty.ndim != wide.ty.ndim:
        raise Declined("the broadcast raises the rank")
    narrow, full = static_shape(source), static_shape(wide)
    if narrow is None or full is None:
        raise Declined("sizes are symbolic")
    axes = reduced_axes(m.root)
    if any(a != b for i, (a, b) in enumerate(zip(narrow, full, strict=True)) if i not in axes):
        raise Declined("the broadcast is along an axis that stays")
    less = m.emit(_like(m.root, source))
    if name != "sum":
        return less
    count = math.prod(b // a for a, b in zip(narrow, full, strict=True) if a)
    return m.emit(R.multiply(less, m.constant(count, dtype_of(source))))


def _of_one(m: Match) -> relax.Expr:
    """Write a reduction over axes of extent 1 as a view."""
    shape = static_shape(m.root.args[0])
    if shape is None or any(shape[axis] != 1 for axis in reduced_axes(m.root)):
        raise Declined("")
    return m.emit(R.reshape(m.root.args[0], m.root.ty.shape))


def _through_transpose(m: Match) -> relax.Expr:
    """Reduce before a transpose that only moves what is reduced."""
    moved = m.producer(m.root.args[0], "permute_dims")
    if moved is None:
        raise Declined("")
    rank = moved.ty.ndim
    order = moved.attrs.axes
    order = list(range(rank))[::-1] if order is None else [int(a) % rank for a in order]
    axes = reduced_axes(m.root)
    left = [order[axis] for axis in range(rank) if axis not in axes]
    places = order if m.root.attrs.keepdims else left
    if left != sorted(left) or (m.root.attrs.keepdims and order != sorted(order)):
        # Axes that stay are in another order: reduce, then move less.
        raise Declined("" if places == order else "the axes that stay change places")
    return m.emit(_like(m.root, moved.args[0], sorted(order[axis] for axis in axes)))


def _rows_of_product(m: Match) -> relax.Expr:
    """Write mean(x @ y) over rows as mean(x) @ y."""
    product = m.producer(m.root.args[0], "matmul")
    if product is None:
        raise Declined("")
    x, y = product.args
    rank = product.ty.ndim
    if x.ty.ndim != rank or y.ty.ndim != 2:
        raise Declined("")
    axes = reduced_axes(m.root)
    if rank - 1 in axes:
        raise Declined("")
    if not m.root.attrs.keepdims and rank - len(axes) < 1:
        raise Declined("")
    less = m.emit(_like(m.root, x))
    return m.emit(R.matmul(less, y))


def _positive(m: Match) -> str | None:
    number = m.number("k")
    return None if number is not None and number > 0 else "the factor is not positive"


def _monotone(reduction: str, name: str, ieee: Ieee) -> Rule:
    """Return the rule that a maximum or minimum of a rising function needs one evaluation."""
    return Rule(
        f"{name}_of_{reduction}",
        f"{reduction}({name}(x)) = {name}({reduction}(x))",
        *(ieee, "always: the function is evaluated on what is left"),
    )


_LESS = "where the other operand has one value along the reduced axes"
_ROUNDING, _NONFINITE, _EXACT = Ieee.ROUNDING, Ieee.NONFINITE, Ieee.EXACT


def _hoists(reduction: str, symbol: str, operator: str, ieee: Ieee, kinds: str) -> Rule:
    return Rule(
        f"{reduction}_before_{operator}",
        f"{reduction}(x {symbol} y) = {reduction}(x) {symbol} y",
        *(ieee, _LESS, kinds),
        rewrite=_hoist(operator),
        search=True,
    )


REDUCTIONS = Family(
    "reductions",
    "a reduction commutes with what does not vary along its axes",
    (
        *(
            Rule(
                f"{name}_of_one",
                f"{name}(x) = reshape(x)",
                *(ieee, "where all reduced axes have extent 1: a view", kinds),
                pattern=f"{name}(...)",
                rewrite=_of_one,
                search=True,
            )
            for name, ieee, kinds in (
                ("mean", Ieee.ZERO_SIGN, "f"),
                ("amax", _EXACT, "fi"),
                ("amin", _EXACT, "fi"),
            )
        ),
        *(
            Rule(
                *(f"{name}_twice", f"{name}({name}(x)) = {name}(x)"),
                ieee,
                "always: one reduction over the axes of both",
                kinds,
                pattern=f"{name}({name}(...))",
                rewrite=_merge,
            )
            for name, ieee, kinds in (
                ("sum", _ROUNDING, "fi"),
                ("mean", _ROUNDING, "f"),
                ("amax", _EXACT, "fi"),
                ("amin", _EXACT, "fi"),
            )
        ),
        Rule(
            *("sum_of_broadcast", "sum(broadcast(x)) = sum(x) * n", _ROUNDING),
            *("always: the repetitions are counted instead of added", "fi"),
            pattern="sum(broadcast(...))",
            rewrite=_times_count,
        ),
        *(
            Rule(
                f"{name}_of_broadcast",
                f"{name}(broadcast(x)) = {name}(x)",
                *(ieee, "always: the repetitions change nothing", kinds),
                pattern=f"{name}(broadcast(...))",
                rewrite=lambda m: _over_broadcast(m, "same"),
            )
            for name, ieee, kinds in (
                ("mean", _ROUNDING, "f"),
                ("amax", _EXACT, "fi"),
                ("amin", _EXACT, "fi"),
            )
        ),
        *(
            Rule(
                f"{name}_of_transpose",
                f"{name}(transpose(x)) = {name}(x)",
                *(ieee, "where the axes that stay keep their order", kinds),
                pattern=f"{name}(transpose(...))",
                rewrite=_through_transpose,
            )
            for name, ieee, kinds in (
                ("sum", _ROUNDING, "fi"),
                ("mean", _ROUNDING, "f"),
                ("amax", _EXACT, "fi"),
            )
        ),
        *(
            Rule(
                f"{name}_of_product",
                f"{name}(x @ y) = {name}(x) @ y",
                *(_ROUNDING, "always, over rows: a product of what is left", "f"),
                pattern=f"{name}(matmul(...))",
                rewrite=_rows_of_product,
                search=True,
            )
            for name in ("sum", "mean")
        ),
        _hoists("sum", "*", "multiply", _NONFINITE, "fi"),
        _hoists("sum", "/", "divide", _NONFINITE, "f"),
        _hoists("mean", "*", "multiply", _NONFINITE, "f"),
        _hoists("mean", "/", "divide", _NONFINITE, "f"),
        _hoists("mean", "+", "add", _ROUNDING, "f"),
        _hoists("mean", "-", "subtract", _NONFINITE, "f"),
        _hoists("amax", "+", "add", _NONFINITE, "f"),
        _hoists("amin", "+", "add", _NONFINITE, "f"),
        Rule("sum_of_negative", "sum(-x) = -sum(x)", Ieee.ZERO_SIGN, "always", "fi"),
        Rule("mean_of_negative", "mean(-x) = -mean(x)", Ieee.ZERO_SIGN, "always"),
        Rule("max_of_negative", "amax(-x) = -amin(x)", Ieee.ZERO_SIGN, "always"),
        Rule("min_of_negative", "amin(-x) = -amax(x)", Ieee.ZERO_SIGN, "always"),
        Rule(
            *("max_of_scaled", "amax(x * k) = amax(x) * k", Ieee.ROUNDING),
            "where k is positive",
            check=_positive,
        ),
        _monotone("amax", "relu", Ieee.ZERO_SIGN),
        _monotone("amax", "sqrt", Ieee.NONFINITE),
        _monotone("amax", "exp", Ieee.ROUNDING),
        _monotone("amax", "log", Ieee.NONFINITE),
        _monotone("amax", "sigmoid", Ieee.ROUNDING),
        _monotone("amax", "tanh", Ieee.ROUNDING),
        _monotone("amin", "relu", Ieee.ZERO_SIGN),
        _monotone("amin", "exp", Ieee.ROUNDING),
        _monotone("amin", "sigmoid", Ieee.ROUNDING),
        Rule(
            *("product_of_exp", "prod(exp(x)) = exp(sum(x))", Ieee.NONFINITE),
            "always: one exponential for each result",
        ),
        Rule(
            *("sum_of_shifted_bits", "sum(x << k) = sum(x) << k", Ieee.EXACT),
            *("always: one shift for each result", "i"),
        ),
    ),
)
