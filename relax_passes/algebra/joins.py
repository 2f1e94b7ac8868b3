"""What is cut into parts, computed part by part and joined again is computed as a whole.

    concat([f(slice(x)), f(slice(x))])  =  f(x)
    slice(view(concat([x, y])))         =  view(x)       unbind of a stack
    split(f(concat([x, y])))            =  [f(x), f(y)]

Exporters write a stack as a concatenation and a view, and an unbind as slices and views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined
from relax_passes.algebra.slice_bounds import Slice, sizes, static
from relax_passes.algebra.slices import ELEMENTWISE, cut_of, join_axis, joined_parts, merged_slice
from relax_passes.analysis.definitions import equal_sizes

R = relax.op
# At most so many operators between the cut and the join are looked through.
_DEPTH = 64
_MAPS = ELEMENTWISE | frozenset("clip where nn.leakyrelu nn.softplus sin cos".split())
_VIEWS = frozenset("reshape flatten squeeze expand_dims".split())


def map_of_parts(m: Match) -> relax.Expr:
    """Write concat([f(slice(x)), ...]) as f(x), f being operators element by element."""
    whole = _Whole(m, join_axis(m.root)).of(joined_parts(m, m.root), _DEPTH)
    if whole is None:
        raise Declined("")
    return whole


class _Whole:
    """Finds the tensor that some parts lie side by side in, along one axis.

    Args:
        m: Takes what the parts are made by as part of the match, and new calls.
        axis: The axis along which the parts are joined.
    """

    def __init__(self, m: Match, axis: int) -> None:
        self._m, self._axis = m, axis
        self._known: dict[tuple[relax.Expr, ...], relax.Expr | None] = {}

    def of(self, parts: Sequence[relax.Expr], depth: int) -> relax.Expr | None:
        """Return what the parts are when joined, None where it is no tensor that is there."""
        key = tuple(parts)
        if key not in self._known:
            self._known[key] = self._find(key, depth) if len(key) > 1 else None
        return self._known[key]

    def _find(self, parts: tuple[relax.Expr, ...], depth: int) -> relax.Expr | None:
        if all(self._m.scope.is_constant(part) for part in parts):
            return self._m.emit(R.concat(list(parts), self._axis))
        for find in (self._split, self._slices):
            whole = find(parts)
            if whole is not None:
                return whole
        calls = [self._m.scope.call_of(part) for part in parts]
        names = {self._m.scope.name_of(call) if call is not None else "" for call in calls}
        if depth == 0 or any(call is None for call in calls):
            return None
        made = [call for call in calls if call is not None]
        if names <= _VIEWS:
            return self._view(parts, made, depth)
        if len(names) == 1 and names <= _MAPS:
            return self._map(parts, made, depth)
        return None

    def _split(self, parts: tuple[relax.Expr, ...]) -> relax.Expr | None:
        """Return what was split into these parts."""
        items = [self._m.scope.definition(part) for part in parts]
        if not all(isinstance(item, relax.TupleGetItem) for item in items):
            return None
        source = items[0].tuple_value
        split = self._m.scope.call_of(source)
        if split is None or self._m.scope.name_of(split) != "split":
            return None
        if join_axis(split) != self._axis or len(split.ty.fields) != len(parts):
            return None
        if not all(i.tuple_value.same_as(source) and i.index == n for n, i in enumerate(items)):
            return None
        for part in parts:
            self._m.element_of(part)
        self._m.producer(source, "split")
        return split.args[0]

    def _slices(self, parts: tuple[relax.Expr, ...]) -> relax.Expr | None:
        """Return the tensor, or the slice of it, that these slices make up."""
        cuts = [cut_of(self._m, part) for part in parts]
        found = [cut for cut in cuts if cut is not None]
        if len(found) < len(parts):
            return None
        pairs = zip(found, found[1:], strict=False)
        if not all(first.is_followed_by(second, self._axis) for first, second in pairs):
            return None
        for part in parts:
            self._m.producer(part, "strided_slice")
        return merged_slice(self._m, found, self._axis)

    def _view(
        self, parts: tuple[relax.Expr, ...], calls: list[tvm.ir.Call], depth: int
    ) -> relax.Expr | None:
        """Return a view of a whole whose parts are viewed, the axes before the joined one kept."""
        lead = self._axis
        sources = [call.args[0] for call in calls]
        for part, source in zip(parts, sources, strict=True):
            before, after = sizes(source), sizes(part)
            if len(before) <= lead or not all(map(equal_sizes, before[:lead], after[:lead])):
                return None
        whole = self.of(sources, depth - 1)
        if whole is None:
            return None
        shape = sizes(parts[0])
        shape[lead] = sum(static(sizes(part)[lead]) for part in parts)
        self._take(parts)
        return self._m.emit(R.reshape(whole, relax.ShapeExpr(shape)))

    def _map(
        self, parts: tuple[relax.Expr, ...], calls: list[tvm.ir.Call], depth: int
    ) -> relax.Expr | None:
        """Return an elementwise operator of the wholes of its operands."""
        first = calls[0]
        if not all(tvm_ffi.structural_equal(call.attrs, first.attrs) for call in calls[1:]):
            return None
        rank, args = len(sizes(parts[0])), []
        for operands in zip(*(call.args for call in calls), strict=True):
            arg = self._operand(operands, rank, depth)
            if arg is None:
                return None
            args.append(arg)
        if all(arg.same_as(own) for arg, own in zip(args, first.args, strict=True)):
            return None  # every operand has extent 1 along the axis: so had the result
        self._take(parts)
        return self._m.emit(tvm.ir.Call(first.op, args, first.attrs))

    def _operand(
        self, operands: tuple[relax.Expr, ...], rank: int, depth: int
    ) -> relax.Expr | None:
        """Return what stands for one operand of each part: one for all, or their whole."""
        first = operands[0]
        if not self._m.scope.is_tensor(first):
            same = all(tvm_ffi.structural_equal(first, other) for other in operands[1:])
            return first if same else None
        if not _varies_along(first, self._axis, rank):
            if all(self._m.scope.same(first, other) for other in operands[1:]):
                return first
        if all(len(sizes(operand)) == rank for operand in operands):
            return self.of(operands, depth - 1)
        return None

    def _take(self, parts: tuple[relax.Expr, ...]) -> None:
        for part in parts:
            call = self._m.scope.call_of(part)
            if call is not None:
                self._m.producer(part, self._m.scope.name_of(call))


def slice_of_viewed_concat(m: Match) -> relax.Expr:
    """Write slice(view(concat([x, y]))) as a view of the part that it takes.

    The view splits or keeps the joined axis and keeps those before it, so that rows of the view
    are runs of the concatenation.
    """
    view = m.scope.call_of(m.root.args[0])
    if view is None or m.scope.name_of(view) not in _VIEWS:
        raise Declined("")
    m.producer(m.root.args[0], m.scope.name_of(view))
    joined = m.producer(view.args[0], "concat")
    if joined is None:
        raise Declined("")
    cut, axis = Slice(m.root), join_axis(joined)
    whole, seen = sizes(joined), cut.shape
    if cut.axes != [axis] or cut.stride[axis] != 1 or not cut.extent[axis]:
        raise Declined("")
    if not all(map(equal_sizes, whole[:axis], seen[:axis])):
        raise Declined("")
    row = math.prod(map(static, seen[axis + 1 :]))
    column = math.prod(map(static, whole[axis + 1 :]))
    begin, end = cut.begin[axis] * row, cut.end(axis) * row
    offset = 0
    for part in joined_parts(m, joined):
        size = static(sizes(part)[axis]) * column
        if (offset, offset + size) == (begin, end):
            return m.emit(R.reshape(part, m.root.ty.shape))
        offset += size
    raise Declined("it takes no whole part of the concatenation")


def split_of_map(m: Match) -> relax.Expr:
    """Write split(f(concat([x, y]))) as [f(x), f(y)], f being one operator of one tensor."""
    mapped = m.scope.call_of(m.root.args[0])
    if mapped is None or m.scope.name_of(mapped) not in _MAPS:
        raise Declined("")
    joined = m.scope.call_of(mapped.args[0])
    if joined is None or m.scope.name_of(joined) != "concat":
        raise Declined("")
    m.producer(m.root.args[0], m.scope.name_of(mapped))
    m.producer(mapped.args[0], "concat")
    axis, rank = join_axis(joined), mapped.ty.ndim
    if join_axis(m.root) != axis or mapped.args[0].ty.ndim != rank:
        raise Declined("it splits elsewhere than it was joined")
    rest = list(mapped.args)[1:]
    if any(m.scope.is_tensor(other) and _varies_along(other, axis, rank) for other in rest):
        raise Declined("an operand varies along the joined axis")
    parts = [
        m.emit(tvm.ir.Call(mapped.op, [part, *rest], mapped.attrs))
        for part in joined_parts(m, joined)
    ]
    tuple_ = relax.BlockBuilder().normalize(relax.Tuple(parts))
    if not tvm_ffi.structural_equal(tuple_.ty, m.root.ty):
        raise Declined("it splits elsewhere than it was joined")
    return tuple_


def _varies_along(operand: relax.Expr, axis: int, rank: int) -> bool:
    """Tell whether a tensor that broadcasts to `rank` axes is not one and the same along `axis`."""
    shape = sizes(operand)
    place = axis - (rank - len(shape))
    return place >= 0 and not equal_sizes(shape[place], 1)
