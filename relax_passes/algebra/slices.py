"""Slices: of slices, concatenations, pads, elementwise results and products; adjacent ones meet."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Ieee, Rule
from relax_passes.algebra.slice_bounds import Slice, make_slice, sizes, static

R = relax.op


def _whole_slice(m: Match) -> relax.Expr:
    if Slice(m.root).axes:
        raise Declined("")
    return m.root.args[0]


def _slice_of_slice(m: Match) -> relax.Expr:
    inner = m.producer(m.root.args[0], "strided_slice")
    if inner is None:
        raise Declined("")
    outer, first = Slice(m.root, backwards=True), Slice(inner, backwards=True)
    rank = len(outer.shape)
    begin = [first.begin[a] + outer.begin[a] * first.stride[a] for a in range(rank)]
    stride = [first.stride[a] * outer.stride[a] for a in range(rank)]
    axes = sorted({*outer.axes, *first.axes})
    return m.emit(make_slice(inner.args[0], axes, begin, outer.extent, stride))


def _slice_of_concat(m: Match) -> relax.Expr:
    joined = m.producer(m.root.args[0], "concat")
    if joined is None:
        raise Declined("")
    cut, axis = Slice(m.root), join_axis(joined)
    if axis not in cut.axes or not cut.extent[axis]:
        raise Declined("")
    offset = 0
    for part in joined_parts(m, joined):
        size = static(sizes(part)[axis])
        if offset <= cut.begin[axis] and cut.end(axis) <= offset + size:
            begin = [*cut.begin]
            begin[axis] -= offset
            if cut.axes == [axis] and cut.extent[axis] == size:
                return part
            return m.emit(make_slice(part, cut.axes, begin, cut.extent, cut.stride))
        offset += size
    raise Declined("it reaches over several parts")


def _slice_of_pad(m: Match) -> relax.Expr:
    """Slice the tensor instead, where nothing of the border is kept."""
    padded = m.producer(m.root.args[0], "nn.pad")
    if padded is None:
        raise Declined("")
    cut, inside = Slice(m.root), sizes(padded.args[0])
    widths = [int(w) for w in padded.attrs.pad_width]
    if min(widths, default=0) < 0:
        raise Declined("a border is negative")
    begin = [*cut.begin]
    for axis, size in enumerate(inside):
        before, after = widths[2 * axis : 2 * axis + 2]
        if axis not in cut.axes and not before and not after:
            continue
        begin[axis] -= before
        if begin[axis] < 0 or cut.end(axis) > before + static(size):
            raise Declined("it keeps some of the border")
    axes = [a for a in cut.axes if (begin[a], cut.stride[a], cut.extent[a]) != (0, 1, inside[a])]
    return m.emit(make_slice(padded.args[0], axes, begin, cut.extent, cut.stride)) if axes \
        else padded.args[0]  # fmt: skip


def _concat_of_slices(m: Match) -> relax.Expr:
    """Take what lies side by side in one slice."""
    axis = join_axis(m.root)
    runs: list[tuple[relax.Expr, list[Slice]]] = []  # a part, and the slices that it stands for
    for part in joined_parts(m, m.root):
        cut = cut_of(m, part)
        before = runs[-1][1] if runs else []
        if cut is not None and before and before[-1].is_followed_by(cut, axis):
            m.producer(part, "strided_slice")
            m.producer(runs[-1][0], "strided_slice")
            before.append(cut)
        else:
            runs.append((part, [] if cut is None else [cut]))
    if all(len(cuts) < 2 for _, cuts in runs):
        raise Declined("")
    parts = [part if len(cuts) < 2 else merged_slice(m, cuts, axis) for part, cuts in runs]
    return parts[0] if len(parts) == 1 else m.emit(R.concat(parts, axis))


def cut_of(m: Match, part: relax.Expr) -> Slice | None:
    """Return the slice that a value is, None where it is none or its bounds are symbolic."""
    call = m.scope.call_of(part)
    if call is None or m.scope.name_of(call) != "strided_slice":
        return None
    try:
        return Slice(call)
    except Declined:
        return None


def merged_slice(m: Match, cuts: list[Slice], axis: int) -> relax.Expr:
    """Return one slice for several that follow each other, or the whole tensor."""
    first = cuts[0]
    extent = [*first.extent]
    extent[axis] = sum(static(cut.extent[axis]) for cut in cuts)
    axes = [a for a in first.axes if a != axis]
    if extent[axis] != first.shape[axis]:
        axes = sorted([*axes, axis])
    return m.emit(make_slice(first.source, axes, first.begin, extent, first.stride)) if axes \
        else first.source  # fmt: skip


def _slice_first(m: Match) -> relax.Expr:
    """Slice the operands of an elementwise operator instead of its result."""
    inner = m.scope.call_of(m.root.args[0])
    if inner is None or m.scope.name_of(inner) not in ELEMENTWISE:
        raise Declined("")
    m.producer(m.root.args[0], m.scope.name_of(inner))
    cut = Slice(m.root)
    args = []
    for arg in inner.args:
        shape = sizes(arg)
        offset = len(cut.shape) - len(shape)
        axes = [a - offset for a in cut.axes if a >= offset and static(shape[a - offset]) != 1]
        if not axes:
            args.append(arg)
            continue
        begin, extent, stride = (v[offset:] for v in (cut.begin, cut.extent, cut.stride))
        args.append(m.emit(make_slice(arg, axes, begin, extent, stride)))
    return m.emit(tvm.ir.Call(inner.op, args, inner.attrs))


def _slice_rows_first(m: Match) -> relax.Expr:
    """Multiply only the rows that a slice keeps."""
    product = m.producer(m.root.args[0], "matmul")
    if product is None:
        raise Declined("")
    x, y = product.args
    cut = Slice(m.root)
    rank = len(cut.shape)
    if x.ty.ndim != rank or y.ty.ndim != 2 or rank - 1 in cut.axes or not cut.axes:
        raise Declined("")
    less = m.emit(make_slice(x, cut.axes, cut.begin, cut.extent, cut.stride))
    return m.emit(tvm.ir.Call(product.op, [less, y], product.attrs))


def join_axis(call: tvm.ir.Call) -> int:
    """Return the axis of a concatenation or a split, counted from 0."""
    axis = call.attrs.axis
    if axis is None:
        return 0
    first = call.args[0]
    return int(axis) % int(call.ty.ndim if isinstance(call.ty, relax.TensorType) else first.ty.ndim)


def joined_parts(m: Match, call: tvm.ir.Call) -> list[relax.Expr]:
    """Return the operands of a concatenation.

    Raises:
        Declined: If they are not known.
    """
    made = m.scope.definition(call.args[0])
    if not isinstance(made, relax.Tuple):
        raise Declined("the concatenated tuple is not known")
    return list(made.fields)


ELEMENTWISE = frozenset(
    """add subtract multiply divide maximum minimum power exp log sqrt rsqrt tanh sigmoid abs
    negative nn.relu nn.gelu nn.silu erf astype floor ceil round square logical_and logical_or
    logical_not""".split()
)
COPY = "always: a copy less"


def shape_rule(
    name: str, equation: str, pattern: str, rewrite: Callable[[Match], relax.Expr], pays: str = COPY
) -> Rule:
    """Return a rule about where elements lie: exact for any type, tried wherever it matches."""
    return Rule(name, equation, Ieee.EXACT, pays, "fib", pattern, None, rewrite, search=True)


SLICE_RULES = (
    shape_rule("whole_slice", "slice(x) = x", "slice(...)", _whole_slice),
    shape_rule(
        "slice_of_slice", "slice(slice(x)) = slice(x)", "slice(slice(...))", _slice_of_slice
    ),
    shape_rule(
        *("slice_of_concat", "slice(concat([x, y])) = slice(x)", "slice(concat(...))"),
        *(_slice_of_concat, "where the slice lies within one part"),
    ),
    shape_rule(
        *("slice_of_pad", "slice(pad(x)) = slice(x)", "slice(pad(...))"),
        *(_slice_of_pad, "where nothing of the border is kept"),
    ),
    shape_rule(
        *("concat_of_slices", "concat([slice(x), slice(x)]) = slice(x)", "concat(...)"),
        *(_concat_of_slices, "where the slices lie side by side"),
    ),
    shape_rule(
        *("slice_first", "slice(f(x, y)) = f(slice(x), slice(y))", "slice(...)"),
        *(_slice_first, "where f is elementwise and only the slice is read"),
    ),
    Rule(
        *("slice_rows_first", "slice(x @ y) = slice(x) @ y", Ieee.ROUNDING),
        *("where rows are cut and only the slice is read", "fi"),
        pattern="slice(matmul(...))",
        rewrite=_slice_rows_first,
        search=True,
    ),
)
