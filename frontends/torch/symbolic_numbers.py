"""Arithmetic in Python on numbers that only a run's data decides: `x * y.item() + 1`.

torch records it as SymPy expressions of symbols, one for each number read from a tensor. Here it
becomes operators on tensors of rank 0: float64, int64 or bool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm import relax

from frontends.errors import InvalidModel

_OP = relax.op
Emit = Callable[[relax.Expr], relax.Expr]

# SymPy and torch name their functions by class; the classes in torch.utils._sympy are private.
_FOLDED = {
    "Add": _OP.add, "Mul": _OP.multiply, "Max": _OP.maximum, "Min": _OP.minimum,
    "And": _OP.logical_and, "Or": _OP.logical_or,
}  # fmt: skip
_DIVISIONS = {
    "FloorDiv": _OP.floor_divide, "CleanDiv": _OP.floor_divide,
    "Mod": _OP.floor_mod, "PythonMod": _OP.floor_mod,
}  # fmt: skip
_BINARY = {
    "Pow": _OP.power, "PowByNatural": _OP.power, "FloatPow": _OP.power, "FloatTrueDiv": _OP.divide,
    "StrictLessThan": _OP.less, "LessThan": _OP.less_equal, "StrictGreaterThan": _OP.greater,
    "GreaterThan": _OP.greater_equal, "Equality": _OP.equal, "Unequality": _OP.not_equal,
}  # fmt: skip
_ROUNDING = {
    "TruncToInt": _OP.trunc, "FloorToInt": _OP.floor, "CeilToInt": _OP.ceil,
    "RoundToInt": _OP.round, "TruncToFloat": _OP.trunc,
}  # fmt: skip
_OPAQUE = "OpaqueUnaryFn_"  # torch's sqrt, exp, sin, ...


class SymbolicNumbers:
    """Tensors for symbolic numbers.

    Attributes:
        tensors: By the name of a symbol, the tensor of rank 0 that it was read from.
    """

    def __init__(self, emit: Emit, size_tensor: Callable[[Any], relax.Expr], divisor: Emit) -> None:
        """`size_tensor` makes a tensor of an expression of sizes alone, `divisor` refuses zero."""
        self.tensors: dict[str, relax.Expr] = {}
        self._emit, self._size_tensor, self._divisor = emit, size_tensor, divisor

    def holds(self, expr: Any) -> bool:
        """Tell whether a number that was read from a tensor occurs in an expression."""
        return any(str(symbol) in self.tensors for symbol in expr.free_symbols)

    def tensor(self, expr: Any) -> relax.Expr:
        """Return a SymPy expression as a tensor of rank 0.

        Raises:
            InvalidModel: If it is of a form that has no translation.
        """
        kind = type(expr).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return relax.const(kind == "BooleanTrue", "bool")
        if expr.is_number and not expr.is_Boolean:
            return relax.const(*((int(expr), "int64") if expr.is_Integer else _float(expr)))
        if expr.is_Symbol and str(expr) in self.tensors:
            return self.tensors[str(expr)]
        if not self.holds(expr) and expr.is_integer:
            return self._size_tensor(expr)
        if kind == "Piecewise":
            return self._first_that_holds(list(expr.args))
        arguments = [self.tensor(argument) for argument in expr.args]
        if kind in _FOLDED:
            return functools.reduce(functools.partial(self._apply, _FOLDED[kind]), arguments)
        if kind in _DIVISIONS:
            left, right = arguments
            if not (expr.args[1].is_number and expr.args[1] != 0):
                right = self._divisor(right)
            return self._apply(_DIVISIONS[kind], left, right)
        if kind in _BINARY:
            return self._apply(_BINARY[kind], *arguments)
        if kind == "IntTrueDiv":
            return self._apply(_OP.divide, *(self._cast(a, "float64") for a in arguments))
        if kind == "Not":
            return self._emit(_OP.logical_not(arguments[0]))
        return self._unary(kind, expr, arguments[0])

    def _first_that_holds(self, pairs: list[Any]) -> relax.Expr:
        """Return the value of the first (value, condition) that holds; the last one does."""
        *others, (chosen, _) = pairs
        result = self.tensor(chosen)
        for value, condition in reversed(others):
            holds, first = self.tensor(condition), self.tensor(value)
            result = self._emit(_OP.where(holds, first, self._cast(result, str(first.ty.dtype))))
        return result

    def _unary(self, kind: str, expr: Any, x: relax.Expr) -> relax.Expr:
        if kind in ("ToFloat", "Identity"):
            return x if kind == "Identity" else self._cast(x, "float64")
        if kind in _ROUNDING:
            rounded = self._emit(_ROUNDING[kind](x))
            return rounded if kind.endswith("Float") else self._cast(rounded, "int64")
        operator = getattr(_OP, kind.removeprefix(_OPAQUE), None)
        if not kind.startswith(_OPAQUE) or operator is None:
            return _refuse(expr)
        return self._emit(operator(x))

    def _apply(self, operator: Callable[..., relax.Expr], *pair: relax.Expr) -> relax.Expr:
        """Apply an operator; an integer beside a float is taken for one."""
        dtypes = {str(x.ty.dtype) for x in pair}
        common = "float64" if "float64" in dtypes else "int64" if "int64" in dtypes else "bool"
        return self._emit(operator(*(self._cast(x, common) for x in pair)))

    def _cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        return x if x.ty.dtype == dtype else self._emit(_OP.astype(x, dtype))


def _float(expr: Any) -> tuple[float, str]:
    return float(expr), "float64"


def _refuse(expr: Any) -> relax.Expr:
    raise InvalidModel(f"a number of the form {expr} is not supported")
