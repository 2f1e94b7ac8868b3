"""Concatenations, splits, pads, flips and the like that undo each other or change nothing."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.algebra.bindings import same_type
from relax_passes.algebra.joins import map_of_parts, slice_of_viewed_concat, split_of_map
from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.algebra.slices import (
    COPY,
    SLICE_RULES,
    join_axis,
    joined_parts,
    shape_rule,
    sizes,
)
from relax_passes.analysis.definitions import axes_of

R = relax.op


def _concat_of_split(m: Match) -> relax.Expr:
    parts = joined_parts(m, m.root)
    source, wanted = None, 0
    for part in parts:
        element = m.element_of(part)
        if (
            element is None
            or element[1] != wanted
            or not (source is None or element[0].same_as(source))
        ):
            raise Declined("")
        source, wanted = element[0], wanted + 1
    split = m.producer(source, "split") if source is not None else None
    if split is None or len(split.ty.fields) != len(parts) or join_axis(split) != join_axis(m.root):
        raise Declined("" if split is None else "not all parts are joined again in their order")
    return split.args[0]


def _split_of_concat(m: Match) -> relax.Expr:
    joined = m.producer(m.root.args[0], "concat")
    if joined is None or join_axis(joined) != join_axis(m.root):
        raise Declined("")
    parts = joined_parts(m, joined)
    fields = list(m.root.ty.fields)
    if len(parts) != len(fields):
        raise Declined("it splits elsewhere than it was joined")
    if not all(same_type(p.ty, f) for p, f in zip(parts, fields, strict=True)):
        raise Declined("it splits elsewhere than it was joined")
    tuple_ = relax.Tuple(parts)
    return tvm.relax.BlockBuilder().normalize(tuple_)


def _concat_of_concat(m: Match) -> relax.Expr:
    axis, parts = join_axis(m.root), []
    for part in joined_parts(m, m.root):
        inner = m.scope.call_of(part)
        if inner is None or m.scope.name_of(inner) != "concat" or join_axis(inner) != axis:
            parts.append(part)
        elif m.scope.readers[part] > 1:
            raise Declined(f"{part.name} has another reader")
        else:
            m.producer(part, "concat")
            parts += joined_parts(m, inner)
    if len(parts) == len(joined_parts(m, m.root)):
        raise Declined("")
    return m.emit(R.concat(parts, axis))


def _concat_of_one(m: Match) -> relax.Expr:
    parts = joined_parts(m, m.root)
    if len(parts) != 1:
        raise Declined("")
    return parts[0]


def _pad_of_pad(m: Match) -> relax.Expr:
    outer, inner = m.root, m.producer(m.root.args[0], "nn.pad")
    if inner is None:
        raise Declined("")
    if any(str(p.attrs.pad_mode) != "constant" for p in (inner, outer)):
        raise Declined("a border is not constant")
    if float(outer.attrs.pad_value) != float(inner.attrs.pad_value):
        raise Declined("the borders have two values")
    first, second = ([int(w) for w in p.attrs.pad_width] for p in (inner, outer))
    if min(first + second) < 0:
        raise Declined("a border is negative")
    widths = [a + b for a, b in zip(first, second, strict=True)]
    return m.emit(R.nn.pad(inner.args[0], widths, "constant", float(outer.attrs.pad_value)))


def _empty_pad(m: Match) -> relax.Expr:
    if any(int(width) for width in m.root.attrs.pad_width):
        raise Declined("")
    return m.root.args[0]


def _flip_twice(m: Match) -> relax.Expr:
    """Drop both of two flips along one axis; flips along others may lie between."""
    between: list[tvm.ir.Call] = []
    value = m.root.args[0]
    axis = _flipped_axis(m.root)
    while (inner := m.producer(value, "flip")) is not None and len(between) < inner.ty.ndim:
        value = inner.args[0]
        if _flipped_axis(inner) == axis:
            for call in reversed(between):
                value = m.emit(tvm.ir.Call(call.op, [value], call.attrs))
            return value
        between.append(inner)
    raise Declined("")


def _flipped_axis(call: tvm.ir.Call) -> int:
    return int(call.attrs.axis) % int(call.ty.ndim)


def _tile_once(m: Match) -> relax.Expr:
    if any(int(count) != 1 for count in m.root.attrs.repeats):
        raise Declined("")
    x = m.root.args[0]
    return x if len(sizes(x)) == len(sizes(m.root)) else m.emit(R.reshape(x, m.root.ty.shape))


def _window_of_one(m: Match) -> relax.Expr:
    attrs = m.root.attrs
    if any(int(size) != 1 for size in (*attrs.pool_size, *attrs.strides)):
        raise Declined("")
    if any(int(width) for width in attrs.padding):
        raise Declined("")
    return m.root.args[0]


def _softmax_of_transpose(m: Match) -> relax.Expr:
    """Take the softmax along the axis where it lies before a transpose, and transpose once."""
    named = [m.call_named(f"nn.{name}") for name in _SOFTMAX]
    inner = next(call for call in named if call is not None)
    before = m.producer(inner.args[0], "permute_dims")
    assert before is not None, "the pattern has one"
    first, second = axes_of(before), axes_of(m.root)
    axis = first[int(inner.attrs.axis) % len(first)]
    function = getattr(R.nn, m.scope.name_of(inner).removeprefix("nn."))
    order = [first[a] for a in second]
    result = m.emit(function(before.args[0], axis))
    return result if order == sorted(order) else m.emit(R.permute_dims(result, order))


_SOFTMAX = ("softmax", "log_softmax")
_POOLS = tuple(f"{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3))


def _pool_rule(pool: str) -> Rule:
    """Return the rule for windows of one element; a mean adds it to a zero that has a sign."""
    ieee = Ieee.EXACT if pool.startswith("max") else Ieee.ZERO_SIGN
    equation, pattern = f"{pool}(x, 1) = x", f"{pool}(...)"
    return Rule(f"{pool}_of_one", equation, ieee, COPY, "f", pattern, None, _window_of_one, True)


def _softmax_rule(name: str) -> Rule:
    """Return the rule for a softmax between transposes; its sums are in another order."""
    equation = f"transpose({name}(transpose(x))) = transpose({name}(x))"
    pattern = f"transpose({name}(transpose(...)))"
    pays = "always: a copy less, two where the transposes cancel"
    rewrite = _softmax_of_transpose
    return Rule(
        f"{name}_of_transpose", equation, Ieee.ROUNDING, pays, "f", pattern, None, rewrite, True
    )


SHAPES = Family(
    "concatenations and slices",
    "what is joined and cut again, or moved in two steps, is moved once",
    (
        shape_rule("concat_of_one", "concat([x]) = x", "concat(...)", _concat_of_one),
        shape_rule("concat_of_split", "concat(split(x)) = x", "concat(...)", _concat_of_split),
        shape_rule(
            *("concat_of_concat", "concat([concat([x, y]), z]) = concat([x, y, z])"),
            *("concat(...)", _concat_of_concat),
        ),
        shape_rule(
            *("split_of_concat", "split(concat([x, y])) = [x, y]"),
            *("split(concat(...))", _split_of_concat),
        ),
        *SLICE_RULES,
        shape_rule(
            *("map_of_parts", "concat([f(slice(x)), f(slice(x))]) = f(x)", "concat(...)"),
            *(map_of_parts, "where all of x, or adjacent slices, is mapped and joined again"),
        ),
        shape_rule(
            *("slice_of_viewed_concat", "slice(view(concat([x, y]))) = view(x)", "slice(...)"),
            *(slice_of_viewed_concat, "where the slice is one part: unbind of a stack"),
        ),
        shape_rule(
            *("split_of_map", "split(f(concat([x, y]))) = [f(x), f(y)]", "split(...)"),
            *(split_of_map, "where it splits as it was joined, f being elementwise"),
        ),
        shape_rule("pad_of_pad", "pad(pad(x)) = pad(x)", "pad(pad(...))", _pad_of_pad),
        shape_rule("empty_pad", "pad(x, 0) = x", "pad(...)", _empty_pad),
        shape_rule("flip_twice", "flip(flip(x)) = x", "flip(flip(...))", _flip_twice),
        shape_rule("tile_once", "tile(x, 1) = x", "tile(...)", _tile_once),
        *(_pool_rule(pool) for pool in _POOLS),
        *(_softmax_rule(name) for name in _SOFTMAX),
    ),
)
