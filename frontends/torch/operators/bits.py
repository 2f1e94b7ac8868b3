"""Shifts of the bits of integers, by torch's rules."""

from __future__ import annotations

import torch
from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter(
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
)
def left_shift(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """X * 2 ** y; 0 where no bit of x is left, or y is negative."""
    data, amount = b.operands(x, y)
    beyond = _beyond(b, amount, torch.iinfo(getattr(torch, b.dtype)).bits)
    moved = b.emit(relax.op.left_shift(data, _within(b, amount, beyond, 0)))
    return relax.op.where(beyond, relax.const(0, b.dtype), moved)


@converter(
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
)
def right_shift(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """X / 2 ** y rounded down; 0, or -1 for a negative x, where y is past all bits or negative."""
    data, amount = b.operands(x, y)
    bits = torch.iinfo(getattr(torch, b.dtype)).bits
    beyond = _beyond(b, amount, bits)
    if b.dtype.startswith("int"):
        return relax.op.right_shift(data, _within(b, amount, beyond, bits - 1))
    moved = b.emit(relax.op.right_shift(data, _within(b, amount, beyond, 0)))
    return relax.op.where(beyond, relax.const(0, b.dtype), moved)


def _beyond(b: GraphBuilder, amount: relax.Expr, bits: int) -> relax.Expr:
    """Whether a number is none of places that an integer of so many bits can be shifted by."""
    large = b.emit(relax.op.greater_equal(amount, relax.const(bits, b.dtype)))
    if not b.dtype.startswith("int"):
        return large
    below = b.emit(relax.op.less(amount, relax.const(0, b.dtype)))
    return b.emit(relax.op.logical_or(large, below))


def _within(b: GraphBuilder, amount: relax.Expr, beyond: relax.Expr, instead: int) -> relax.Expr:
    return b.emit(relax.op.where(beyond, relax.const(instead, b.dtype), amount))
