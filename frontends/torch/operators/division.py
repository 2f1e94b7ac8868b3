"""Division rounded to whole numbers, and remainders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from frontends.computations.broadcast import combined
from frontends.computations.quotient import floor_quotient, integer_quotient
from frontends.computations.remainder import remainder as remainder_of
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.elementwise import is_float
from frontends.torch.registry import converter

Combine = Callable[[Any, Any], Any]


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(b: GraphBuilder, x: Value, y: Value, *, rounding_mode: str | None) -> relax.Expr:
    """Division rounded towards zero ("trunc"), down ("floor"), or not at all."""
    if rounding_mode is None:
        return relax.op.divide(*b.operands(x, y))
    if rounding_mode == "floor":
        return floor_divide(b, x, y)
    if is_float(b.dtype):
        return relax.op.trunc(b.emit(relax.op.divide(*b.operands(x, y))))
    if _never_traps(y):
        return relax.op.divide(*b.operands(x, y))  # on integers Relax truncates
    return _of_integers(b, x, y, lambda p, q: integer_quotient(p, q, down=False))


@converter("aten.floor_divide.default")
def floor_divide(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """Division rounded down, of floats by the exact remainder; an integer by 0 ends the run."""
    if is_float(b.dtype):
        return _broadcast(b, floor_quotient, *b.operands(x, y))
    if _never_traps(y):
        return relax.op.floor_divide(*b.operands(x, y))
    return _of_integers(b, x, y, lambda p, q: integer_quotient(p, q, down=True))


@converter("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The remainder with the divisor's sign, as Python's `%`; an integer's by 0 ends the run."""
    if is_float(b.dtype):
        return _broadcast(
            b,
            lambda p, q: remainder_of(p, q, of_dividend=False, sign_of_zero=False),
            *b.operands(x, y),
        )
    if _never_traps(y):
        return relax.op.floor_mod(*b.operands(x, y))
    return _of_integers(b, x, y, lambda p, q: remainder_of(p, q, of_dividend=False))


@converter("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The remainder with the dividend's sign, as C's `fmod`; an integer's by 0 ends the run."""
    if is_float(b.dtype) or _never_traps(y):
        return relax.op.mod(*b.operands(x, y))
    return _of_integers(b, x, y, lambda p, q: remainder_of(p, q, of_dividend=True))


def _never_traps(divisor: Value) -> bool:
    """Tell whether integers are divided by known ones, none of which a processor traps."""
    if isinstance(divisor, torch.Tensor):
        return not bool(((divisor == 0) | (divisor == -1)).any())
    return isinstance(divisor, int) and divisor not in (0, -1)


def _of_integers(b: GraphBuilder, x: Value, y: Value, combine: Combine) -> relax.Expr:
    """Emit a division of integers that ends the run where the divisor has a zero, as eager does."""
    left, right = b.operands(x, y)
    known = y.ne(0).all() if isinstance(y, torch.Tensor) else isinstance(y, int) and y != 0
    if not known and 0 not in [d for d in b.result_shape if isinstance(d, int)]:
        right = b.divisor(right)
    return _broadcast(b, combine, left, right)


def _broadcast(
    b: GraphBuilder, combine: Combine, left: relax.Expr, right: relax.Expr
) -> relax.Expr:
    """Emit `combine` of the elements of two tensors that broadcast to the node's result."""
    return b.te(
        lambda x, y, sizes: combined(combine, x, y, sizes), left, right, dims=b.result_shape
    )
