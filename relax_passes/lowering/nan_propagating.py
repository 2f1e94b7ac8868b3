"""Comparisons that keep NaN, as NumPy, torch and the ONNX operators have it.

`max(NaN, 0)` is 0 by the processor's instruction and by TVM's computation; here a NaN operand
always gives NaN. All forms are selects on comparisons, which vectorize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx

from relax_passes.lowering.rule import LoweringRule, default_lowering, dtype_of
from relax_passes.pass_base import PassContext

Binary = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


def maximum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Return the greater of two scalars, NaN where either is NaN."""
    if not _is_float(a):
        return te.max(a, b)
    # a NaN in b makes `a > b` false, so that b is taken; one in a needs the second test.
    return _with_name(a, lambda x: _with_name(b, lambda y: _pick(x > y, x, y)))


def minimum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Return the lesser of two scalars, NaN where either is NaN."""
    if not _is_float(a):
        return te.min(a, b)
    return _with_name(a, lambda x: _with_name(b, lambda y: _pick(x < y, x, y)))


def _pick(wins: tirx.Expr, x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    known = x.astype("float32") if str(x.ty.dtype) == "bfloat16" else x  # isnan has no bfloat16
    return tirx.Select(tirx.any(wins, tirx.isnan(known)), x, y)


def _is_float(value: tirx.Expr) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))


def _with_name(value: tirx.Expr, use: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Return `use(value)` with the value computed once.

    Without the name, inlining a chain of n such operators would write its first operand 2^n times.
    """
    if isinstance(value, tirx.Var | tirx.FloatImm):
        return use(value)
    name = tirx.Var("value", str(value.ty.dtype))
    return tirx.Let(name, value, use(name))


def relu(x: te.Tensor) -> te.Tensor:
    """Compute max(x, 0) over a tensor of any shape."""
    zero = tirx.const(0, x.dtype)

    def positive_part(*index: tirx.Expr) -> tirx.Expr:
        return _with_name(x(*index), lambda v: tirx.Select(v < zero, zero, v))

    return te.compute(x.shape, positive_part, name="relu")


def clip(x: te.Tensor, low: float, high: float) -> te.Tensor:
    """Compute min(max(x, low), high) over a tensor of any shape."""
    bottom, top = _bound(low, x.dtype), _bound(high, x.dtype)

    def raised(value: tirx.Expr) -> tirx.Expr:
        return value if bottom is None else tirx.Select(value < bottom, bottom, value)

    def lowered(value: tirx.Expr) -> tirx.Expr:
        return value if top is None else tirx.Select(value > top, top, value)

    def clipped(*index: tirx.Expr) -> tirx.Expr:
        return _with_name(x(*index), lambda v: _with_name(raised(v), lowered))

    return te.compute(x.shape, clipped, name="clip")


def _bound(value: float, dtype: Any) -> tirx.Expr | None:
    """Return a bound as a constant of `dtype`, None where every value of `dtype` meets it."""
    name = str(dtype)
    if not name.startswith(("float", "bfloat")):
        lowest, highest = tirx.min_value(name), tirx.max_value(name)
        if value <= int(lowest.value) or value >= int(highest.value):
            return None
        return tirx.const(int(value), name)
    return None if value in (float("inf"), float("-inf")) else tirx.const(value, name)


def _elementwise(combine: Binary, name: str) -> LoweringRule:
    """Return the rule of a binary operator with broadcasting."""

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        def te_binary(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            shape = [d if isinstance(d, tirx.Expr) else int(d) for d in call.ty.shape.values]

            def value(*index: tirx.Expr) -> tirx.Expr:
                return combine(_read(a, index), _read(b, index))

            return te.compute(shape, value, name=name)

        a, b = call.args
        if not isinstance(call.ty.shape, relax.ShapeExpr):
            return default_lowering(bb, call)
        return bb.call_te(te_binary, a, b, primfunc_name_hint=name)

    return lower


def _read(x: te.Tensor, index: Sequence[tirx.Expr]) -> tirx.Expr:
    """Read the element of `x` that broadcasting puts at `index`."""
    own = index[len(index) - len(x.shape) :]
    zero = tirx.const(0, "int64")
    return x(
        *(
            zero if isinstance(d, tirx.IntImm) and int(d) == 1 else i
            for i, d in zip(own, x.shape, strict=True)
        )
    )


def _reduction(combine: Binary, identity: Callable[[str], tirx.Expr], name: str) -> LoweringRule:
    """Return the rule of a max or min over axes."""

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        if not dtype_of(call.args[0]).startswith(("float", "bfloat")):
            return default_lowering(bb, call)
        reducer = te.comm_reducer(combine, identity, name=name)
        keep = bool(call.attrs.keepdims)
        rank = call.args[0].ty.ndim
        axes = range(rank) if call.attrs.axis is None else [int(a) % rank for a in call.attrs.axis]
        reduced = sorted(set(axes))

        def te_reduce(x: te.Tensor) -> te.Tensor:
            steps = {a: te.reduce_axis((0, x.shape[a]), name=f"k{a}") for a in reduced}
            kept = [a for a in range(rank) if a not in steps]
            shape = [
                tirx.const(1, "int64") if a in steps else x.shape[a]
                for a in range(rank)
                if keep or a not in steps
            ]

            def value(*index: tirx.Expr) -> tirx.Expr:
                own = dict(zip(range(rank) if keep else kept, index, strict=True))
                source = [steps[a] if a in steps else own[a] for a in range(rank)]
                return reducer(x(*source), axis=list(steps.values()))

            return te.compute(shape, value, name=name)

        if rank < 1 or not reduced:
            return default_lowering(bb, call)
        return bb.call_te(te_reduce, call.args[0], primfunc_name_hint=name)

    return lower


def _lower_relu(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    return bb.call_te(relu, call.args[0], primfunc_name_hint="relu")


def _lower_relu6(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    return bb.call_te(clip, call.args[0], 0.0, 6.0, primfunc_name_hint="relu6")


def _lower_clip(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    low, high = (float(_immediate(bound)) for bound in call.args[1:3])
    return bb.call_te(clip, call.args[0], low, high, primfunc_name_hint="clip")


def _lower_sign(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    if not dtype_of(call.args[0]).startswith(("float", "bfloat")):
        return default_lowering(bb, call)

    def te_sign(x: te.Tensor) -> te.Tensor:
        zero, one = tirx.const(0, x.dtype), tirx.const(1, x.dtype)

        def sign(*index: tirx.Expr) -> tirx.Expr:
            # x itself where it is neither above nor below zero: 0, -0 or NaN.
            return _with_name(
                x(*index),
                lambda v: tirx.Select(v < zero, -one, tirx.Select(v > zero, one, v)),
            )

        return te.compute(x.shape, sign, name="sign")

    return bb.call_te(te_sign, call.args[0], primfunc_name_hint="sign")


def _immediate(value: Any) -> float:
    """Return the number in an argument that relax keeps as a scalar expression."""
    return getattr(value, "value", value)


def _max_pool(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Lower max_pool1d/2d/3d in NC... layout; positions in the padding never win."""
    layout = str(call.attrs.layout)
    shape = call.ty.shape
    if not layout.startswith("NC") or layout[-1].islower() or str(call.attrs.out_layout) != layout:
        return default_lowering(bb, call)
    if not isinstance(shape, relax.ShapeExpr):
        return default_lowering(bb, call)
    window = [int(v) for v in call.attrs.pool_size]
    strides = [int(v) for v in call.attrs.strides]
    dilation = [int(v) for v in call.attrs.dilation]
    before = [int(v) for v in call.attrs.padding][: len(window)]

    def te_max_pool(x: te.Tensor) -> te.Tensor:
        reducer = te.comm_reducer(maximum, _lowest, name="max")
        steps = [te.reduce_axis((0, size), name=f"k{i}") for i, size in enumerate(window)]

        def value(n: tirx.Expr, c: tirx.Expr, *index: tirx.Expr) -> tirx.Expr:
            at = [
                i * s + k * d - p
                for i, s, k, d, p in zip(index, strides, steps, dilation, before, strict=True)
            ]
            inside = [
                tirx.all(i >= 0, i < extent) for i, extent in zip(at, x.shape[2:], strict=True)
            ]
            read = tirx.if_then_else(tirx.all(*inside), x(n, c, *at), _lowest(x.dtype))
            return reducer(read, axis=steps)

        return te.compute(list(shape.values), value, name="max_pool")

    return bb.call_te(te_max_pool, call.args[0], primfunc_name_hint="max_pool")


def _lowest(dtype: Any) -> tirx.Expr:
    """Return the least value of `dtype`, -inf where there is one."""
    name = str(dtype)
    return tirx.const(float("-inf"), name) if "float" in name else tirx.min_value(name)


def _highest(dtype: Any) -> tirx.Expr:
    """Return the greatest value of `dtype`, inf where there is one."""
    name = str(dtype)
    return tirx.const(float("inf"), name) if "float" in name else tirx.max_value(name)


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for relu, clip, sign, max, min and max pooling."""
    del ctx  # the same on every target
    return {
        "relax.nn.relu": _lower_relu,
        "relax.nn.relu6": _lower_relu6,
        "relax.clip": _lower_clip,
        "relax.sign": _lower_sign,
        "relax.maximum": _elementwise(maximum, "maximum"),
        "relax.minimum": _elementwise(minimum, "minimum"),
        "relax.max": _reduction(maximum, _lowest, "max"),
        "relax.min": _reduction(minimum, _highest, "min"),
        "relax.nn.max_pool1d": _max_pool,
        "relax.nn.max_pool2d": _max_pool,
        "relax.nn.max_pool3d": _max_pool,
    }
