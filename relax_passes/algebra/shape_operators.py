"""Concatenations, splits, slices, pads and flips that undo each other or do so in two steps."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.algebra.bindings import same_type
from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.lowering.rule import static_shape

R = relax.op


def _axis(call: relax.Expr) -> int:
    axis = call.attrs.axis
    return 0 if axis is None else int(axis) % _rank(call)


def _rank(call: relax.Expr) -> int:
    first = call.args[0]
    return int((first.fields[0] if isinstance(first, relax.Tuple) else first).ty.ndim)


def _parts(m: Match, call: relax.Expr) -> list[relax.Expr]:
    """Return the operands of a concatenation."""
    made = m.scope.definition(call.args[0])
    if not isinstance(made, relax.Tuple):
        raise Declined("the concatenated tuple is not known")
    return list(made.fields)


def _concat_of_split(m: Match) -> relax.Expr:
    parts = _parts(m, m.root)
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
    if split is None or len(split.ty.fields) != len(parts) or _axis(split) != _axis(m.root):
        raise Declined("" if split is None else "not all parts are joined again in their order")
    return split.args[0]


def _split_of_concat(m: Match) -> relax.Expr:
    joined = m.producer(m.root.args[0], "concat")
    if joined is None or _axis(joined) != _axis(m.root):
        raise Declined("")
    parts = _parts(m, joined)
    fields = list(m.root.ty.fields)
    if len(parts) != len(fields):
        raise Declined("it splits elsewhere than it was joined")
    if not all(same_type(p.ty, f) for p, f in zip(parts, fields, strict=True)):
        raise Declined("it splits elsewhere than it was joined")
    tuple_ = relax.Tuple(parts)
    return tvm.relax.BlockBuilder().normalize(tuple_)


def _concat_of_concat(m: Match) -> relax.Expr:
    axis, parts = _axis(m.root), []
    for part in _parts(m, m.root):
        inner = m.scope.call_of(part)
        if inner is None or m.scope.name_of(inner) != "concat" or _axis(inner) != axis:
            parts.append(part)
        elif m.scope.readers[part] > 1:
            raise Declined(f"{part.name} has another reader")
        else:
            m.producer(part, "concat")
            parts += _parts(m, inner)
    if len(parts) == len(_parts(m, m.root)):
        raise Declined("")
    return m.emit(R.concat(parts, axis))


def _concat_of_one(m: Match) -> relax.Expr:
    parts = _parts(m, m.root)
    if len(parts) != 1:
        raise Declined("")
    return parts[0]


class _Slice:
    """A slice with positive strides: for each axis where it begins, its stride and its extent."""

    def __init__(self, call: relax.Expr) -> None:
        shape = static_shape(call.args[0])
        result = static_shape(call)
        if shape is None or result is None or len(call.args) < 4:
            raise Declined("a size is symbolic")
        rank = len(shape)
        self.shape, self.extent = shape, result
        self.begin, self.stride = [0] * rank, [1] * rank
        lists = [[_number(v) for v in _fields(arg)] for arg in call.args[1:]]
        steps = lists[3] if len(lists) > 3 else [1] * len(lists[0])
        for axis, begin, stride in zip(lists[0], lists[1], steps, strict=True):
            if stride < 1:
                raise Declined("a stride is negative")
            axis %= rank
            begin = begin + shape[axis] if begin < 0 else begin
            self.begin[axis], self.stride[axis] = min(max(begin, 0), shape[axis]), stride

    @property
    def axes(self) -> list[int]:
        """Return the axes that it changes."""
        return [
            axis
            for axis, (extent, size) in enumerate(zip(self.extent, self.shape, strict=True))
            if extent != size or self.begin[axis] or self.stride[axis] != 1
        ]


def _fields(arg: relax.Expr) -> list[relax.Expr]:
    if not isinstance(arg, relax.Tuple):
        raise Declined("its bounds are not known")
    return list(arg.fields)


def _number(value: relax.Expr) -> int:
    number = getattr(value, "value", None)
    if not isinstance(number, int):
        raise Declined("its bounds are symbolic")
    return number


def make_slice(
    x: relax.Expr, axes: list[int], begin: list[int], extent: list[int], stride: list[int]
) -> relax.Expr:
    """Return `extent[a]` elements along each of `axes`, from `begin[a]` on."""
    return R.strided_slice(
        x,
        axes,
        [begin[a] for a in axes],
        [begin[a] + (extent[a] - 1) * stride[a] + 1 if extent[a] else begin[a] for a in axes],
        [stride[a] for a in axes],
    )


def _whole_slice(m: Match) -> relax.Expr:
    if _Slice(m.root).axes:
        raise Declined("")
    return m.root.args[0]


def _slice_of_slice(m: Match) -> relax.Expr:
    inner = m.producer(m.root.args[0], "strided_slice")
    if inner is None:
        raise Declined("")
    outer, first = _Slice(m.root), _Slice(inner)
    rank = len(outer.shape)
    begin = [first.begin[a] + outer.begin[a] * first.stride[a] for a in range(rank)]
    stride = [first.stride[a] * outer.stride[a] for a in range(rank)]
    axes = sorted({*outer.axes, *first.axes})
    return m.emit(make_slice(inner.args[0], axes, begin, list(outer.extent), stride))


def _slice_of_concat(m: Match) -> relax.Expr:
    joined = m.producer(m.root.args[0], "concat")
    if joined is None:
        raise Declined("")
    cut, axis = _Slice(m.root), _axis(joined)
    if axis not in cut.axes or not cut.extent[axis]:
        raise Declined("")
    first = cut.begin[axis]
    last = first + (cut.extent[axis] - 1) * cut.stride[axis]
    offset = 0
    for part in _parts(m, joined):
        shape = static_shape(part)
        assert shape is not None, "the sum of the parts is static"
        if offset <= first and last < offset + shape[axis]:
            begin = [*cut.begin]
            begin[axis] -= offset
            whole = cut.axes == [axis] and cut.extent[axis] == shape[axis]
            if whole:
                return part
            return m.emit(make_slice(part, cut.axes, begin, list(cut.extent), cut.stride))
        offset += shape[axis]
    raise Declined("it reaches over several parts")


def _slice_first(m: Match) -> relax.Expr:
    """Slice the operands of an elementwise operator instead of its result."""
    inner = m.scope.call_of(m.root.args[0])
    if inner is None or m.scope.name_of(inner) not in _ELEMENTWISE:
        raise Declined("")
    m.producer(m.root.args[0], m.scope.name_of(inner))
    cut = _Slice(m.root)
    args = []
    for arg in inner.args:
        shape = static_shape(arg)
        if shape is None:
            raise Declined("a size is symbolic")
        offset = len(cut.shape) - len(shape)
        axes = [a - offset for a in cut.axes if a >= offset and shape[a - offset] != 1]
        if not axes:
            args.append(arg)
            continue
        begin, extent, stride = ([*v][offset:] for v in (cut.begin, cut.extent, cut.stride))
        args.append(m.emit(make_slice(arg, axes, begin, extent, stride)))
    return m.emit(tvm.ir.Call(inner.op, args, inner.attrs))


def _slice_rows_first(m: Match) -> relax.Expr:
    """Multiply only the rows that a slice keeps."""
    product = m.producer(m.root.args[0], "matmul")
    if product is None:
        raise Declined("")
    x, y = product.args
    cut = _Slice(m.root)
    rank = len(cut.shape)
    if x.ty.ndim != rank or y.ty.ndim != 2 or rank - 1 in cut.axes or not cut.axes:
        raise Declined("")
    less = m.emit(make_slice(x, cut.axes, cut.begin, list(cut.extent), cut.stride))
    return m.emit(tvm.ir.Call(product.op, [less, y], product.attrs))


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
    inner = m.producer(m.root.args[0], "flip")
    if inner is None or int(inner.attrs.axis) != int(m.root.attrs.axis):
        raise Declined("")
    return inner.args[0]


_ELEMENTWISE = frozenset(
    """add subtract multiply divide maximum minimum power exp log sqrt rsqrt tanh sigmoid abs
    negative nn.relu nn.gelu nn.silu erf astype floor ceil round square logical_and logical_or
    logical_not""".split()
)
_EXACT = Ieee.EXACT
_COPY = "always: a copy less"


def _shape_rule(name: str, equation: str, pays: str, pattern: str, rewrite: object) -> Rule:
    return Rule(name, equation, _EXACT, pays, "fib", pattern, None, rewrite, search=True)  # type: ignore[arg-type]


SHAPES = Family(
    "concatenations and slices",
    "what is joined and cut again, or moved in two steps, is moved once",
    (
        _shape_rule("concat_of_one", "concat([x]) = x", _COPY, "concat(...)", _concat_of_one),
        _shape_rule(
            "concat_of_split", "concat(split(x)) = x", _COPY, "concat(...)", _concat_of_split
        ),
        _shape_rule(
            *("concat_of_concat", "concat([concat([x, y]), z]) = concat([x, y, z])", _COPY),
            *("concat(...)", _concat_of_concat),
        ),
        _shape_rule(
            *("split_of_concat", "split(concat([x, y])) = [x, y]", _COPY),
            *("split(concat(...))", _split_of_concat),
        ),
        _shape_rule("whole_slice", "slice(x) = x", _COPY, "slice(...)", _whole_slice),
        _shape_rule(
            *("slice_of_slice", "slice(slice(x)) = slice(x)", _COPY),
            *("slice(slice(...))", _slice_of_slice),
        ),
        _shape_rule(
            *("slice_of_concat", "slice(concat([x, y])) = slice(x)"),
            "where the slice lies within one part",
            *("slice(concat(...))", _slice_of_concat),
        ),
        _shape_rule(
            *("slice_first", "slice(f(x, y)) = f(slice(x), slice(y))"),
            "where f is elementwise and only the slice is read",
            *("slice(...)", _slice_first),
        ),
        Rule(
            *("slice_rows_first", "slice(x @ y) = slice(x) @ y", Ieee.ROUNDING),
            *("where rows are cut and only the slice is read", "fi"),
            pattern="slice(matmul(...))",
            rewrite=_slice_rows_first,
            search=True,
        ),
        _shape_rule("pad_of_pad", "pad(pad(x)) = pad(x)", _COPY, "pad(pad(...))", _pad_of_pad),
        _shape_rule("empty_pad", "pad(x, 0) = x", _COPY, "pad(...)", _empty_pad),
        _shape_rule("flip_twice", "flip(flip(x)) = x", _COPY, "flip(flip(...))", _flip_twice),
    ),
)
