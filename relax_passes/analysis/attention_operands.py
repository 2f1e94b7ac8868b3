"""The operands of attention: Q, K and V behind transposes, scales and repeated heads.

Exporters split the heads off by reshape and transpose, swap the axes of K with the heads or in a
second transpose, join batch and heads into one axis, and repeat the heads of K and V where several
heads of Q share one. Ainslie et al.: GQA, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.tirx import IntImm

from relax_passes.analysis.definitions import (
    Definitions,
    axes_of,
    dimensions,
    equal_shapes,
    equal_sizes,
    operator_name,
    scalar,
)

Sizes = list[tvm.ir.Expr]


class NotAttentionError(ValueError):
    """Why a softmax between two products is not attention; the message is for the report."""


@dataclass(frozen=True)
class Operand:
    """`value` with its axes taken in `order`: (batch, heads, length, size) or (batch, ...)."""

    value: relax.Expr
    order: tuple[int, ...]

    def sizes(self) -> Sizes:
        """Return the sizes of the axes in order.

        Raises:
            NotAttentionError: If the shape is unknown.
        """
        dims = dimensions(self.value)
        if dims is None:
            raise NotAttentionError("the shape of an operand is unknown")
        return [dims[axis] for axis in self.order]


def operand(
    definitions: Definitions, value: relax.Expr, order: tuple[int, ...], *, scaled: bool = True
) -> tuple[float, Operand]:
    """Look through transposes and, where `scaled`, constant factors; return their product too."""
    factor = 1.0
    while True:
        value = definitions.root(value)
        call = definitions.call(value, "permute_dims", "multiply", "divide")
        if call is None:
            return factor, Operand(value, order)
        if operator_name(call) == "permute_dims":
            moved = axes_of(call)
            order, value = tuple(moved[axis] for axis in order), call.args[0]
            continue
        inner, number = scaled_value(call)
        if inner is None or not scaled:
            return factor, Operand(value, order)
        factor, value = factor * number, inner


def few_heads(definitions: Definitions, k: Operand, v: Operand) -> tuple[Operand, Operand]:
    """Return K and V before their heads were repeated, if both were as often; else as they are."""
    few_k, few_v = (_before_repetition(definitions, x) for x in (k, v))
    if few_k is None or few_v is None:
        return k, v
    return (few_k, few_v) if equal_sizes(few_k.sizes()[1], few_v.sizes()[1]) else (k, v)


def _before_repetition(definitions: Definitions, x: Operand) -> Operand | None:
    """Return the operand whose head i // n is head i of `x`."""
    if len(x.order) != 4:
        return None
    heads = x.order[1]
    repeat = definitions.call(x.value, "repeat")
    if repeat is not None:
        axis = repeat.attrs.axis
        source = repeat.args[0] if axis is not None and int(axis) % 4 == heads else None
    else:
        source = _before_spread(definitions, x.value, heads)
    if source is None:
        return None
    return operand(definitions, source, x.order, scaled=False)[1]


def _before_spread(definitions: Definitions, value: relax.Expr, heads: int) -> relax.Expr | None:
    """Return x of `reshape(broadcast_to(reshape(x)))` that repeats each slice of axis `heads`."""
    merged = definitions.call(value, "reshape")
    spread = None if merged is None else definitions.call(merged.args[0], "broadcast_to")
    split = None if spread is None else definitions.call(spread.args[0], "reshape", "expand_dims")
    if split is None or spread is None:
        return None
    few, one, many, all_heads = (
        dimensions(x) or [] for x in (split.args[0], spread.args[0], spread, value)
    )
    if [len(few), len(one), len(many), len(all_heads)] != [4, 5, 5, 4]:
        return None
    place = heads + 1
    before, after = few[:place], few[place:]
    others = [size for axis, size in enumerate(all_heads) if axis != heads]
    pairs = [
        *zip(one, [*before, IntImm("int64", 1), *after], strict=True),
        *zip(many, [*before, many[place], *after], strict=True),
        *zip(others, [size for axis, size in enumerate(few) if axis != heads], strict=True),
    ]
    return split.args[0] if all(equal_sizes(a, b) for a, b in pairs) else None


def score_sizes(definitions: Definitions, stages: list[Sizes], q: Operand) -> Sizes:
    """Return (batch, heads, rows, keys), from the `stages` of the scores, last to first."""
    joint, rows, keys = stages[-1][-3:]
    for stage in stages:
        if len(stage) == 4:
            if len(stages[-1]) == 3 and not equal_shapes(stage[2:], [rows, keys]):
                raise NotAttentionError("it joins heads and rows")
            return stage
    split = definitions.call(q.value, "reshape")
    before = None if split is None else dimensions(split.args[0])
    if before is not None and len(before) == 4 and equal_sizes(before[2], rows):
        return [before[0], before[1], rows, keys]
    return [joint, IntImm("int64", 1), rows, keys]


def scaled_value(call: tvm.ir.Call) -> tuple[relax.Expr | None, float]:
    """Return x and c of a product or quotient `c * x`, c a constant; None for x otherwise."""
    a, b = call.args
    if operator_name(call) == "divide":
        number = scalar(b)
        return (a, 1.0 / number) if number else (None, 1.0)
    for value, factor in ((a, scalar(b)), (b, scalar(a))):
        if factor is not None:
            return value, factor
    return None, 1.0
