"""Which values are known not to be zero, or not to be negative, from the operators that make them.

Of ordinary numbers: what underflows to zero is left to the class `nonfinite` of the rules that ask.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from relax_passes.algebra.bindings import Bindings
from relax_passes.constant_values import array_of

_POSITIVE = frozenset("exp sigmoid nn.softplus cosh nn.softmax rsqrt".split())
_NOT_NEGATIVE = frozenset("abs square sqrt nn.relu".split())


def is_nonzero(scope: Bindings, value: relax.Expr) -> bool:
    """Return whether no element of a value can be zero."""
    if scope.is_constant(value):
        return bool(np.all(array_of(value) != 0))
    return _is_positive(scope, value)


def _is_positive(scope: Bindings, value: relax.Expr) -> bool:
    if scope.is_constant(value):
        return bool(np.all(array_of(value) > 0))
    name, args = _made_by(scope, value)
    if name == "maximum":
        return any(scope.is_constant(arg) and _is_positive(scope, arg) for arg in args)
    if name == "add":
        return any(
            scope.is_constant(shift) and _is_positive(scope, shift) and _is_not_negative(scope, x)
            for x, shift in (args, args[::-1])
        )
    return name in _POSITIVE


def _is_not_negative(scope: Bindings, value: relax.Expr) -> bool:
    name, args = _made_by(scope, value)
    square = name == "multiply" and args[0].same_as(args[1])
    return square or name in _POSITIVE or name in _NOT_NEGATIVE


def _made_by(scope: Bindings, value: relax.Expr) -> tuple[str, list[relax.Expr]]:
    call = scope.call_of(value)
    return ("", []) if call is None else (scope.name_of(call), scope.args_of(call))
