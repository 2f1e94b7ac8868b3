"""torch's symbolic sizes (SymPy expressions) as TIR integer expressions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import tvm
from tvm import tirx

from frontends.dims import DimArithmetic, dim_name
from frontends.errors import InvalidModel
from frontends.imported_model import Dim

Size: TypeAlias = "int | tvm.ir.Expr"

_UNBOUNDED = 1 << 40  # torch writes sizes near 2^63 where it means that there is no bound

_TRACED = 2  # the least size that torch tells from 0 and 1

# SymPy and torch name their functions by class; the classes in torch.utils._sympy are private.
_BINARY = {
    "FloorDiv": DimArithmetic.floordiv,
    "CleanDiv": DimArithmetic.floordiv,
    "Mod": DimArithmetic.floormod,
    "PythonMod": DimArithmetic.floormod,
}
_NARY = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Max": tirx.max,
    "Min": tirx.min,
}

# SymPy's names of comparisons.
_RELATIONS = {
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "Equality": operator.eq,
    "Unequality": operator.ne,
}


class SymbolTable:
    """Maps torch's size symbols to TIR variables, one variable per symbol.

    Attributes:
        arithmetic: Compares sizes; it knows all variables to be at least 0.
    """

    def __init__(self, names: dict[str, str]) -> None:
        """`names` gives the user's name of a torch symbol, such as {"s77": "batch"}."""
        self.arithmetic = DimArithmetic()
        self._names = names
        self._equal: dict[Any, Size] = {}
        self._variables: dict[str, tirx.Var] = {}
        self._defined: set[tirx.Var] = set()
        self._fixed: dict[str, Size] = {}
        self._fresh = 0
        self._postponed: dict[str, Callable[[tirx.Var], None]] = {}

    def define(self, sizes: Any) -> None:
        """Note that sizes have a value from here on: an input's, or what a run has counted."""
        self._defined.update(size for size in sizes if isinstance(size, tirx.Var))

    def fix(self, symbol: Size, value: int) -> None:
        """Note that a symbol turned out to be a number: from here on it is that number."""
        for name, variable in self._variables.items():
            if variable is symbol:
                self._fixed[name] = value

    def equate_where_known(self, asked: Sequence[Any], found: Sequence[Any]) -> None:
        """Note what torch's expressions of sizes are where a graph asks for known ones.

        Args:
            asked: Sizes; -1 for one that is left.
            found: The same as torch has worked them out. A run checks that they agree.
        """
        for size, value in zip(asked, found, strict=False):
            if isinstance(size, int) and size >= 0 and isinstance(value, torch.SymInt):
                self._equal[value.node.expr] = size

    def postpone(self, name: str, define: Callable[[tirx.Var], None]) -> None:
        """Have `define` give a symbol of torch its value where it is first used as a size."""
        self._postponed[name] = define

    def bind(self, symbol: Any, size: Size) -> None:
        """Let torch's symbol, if `symbol` is a single one, stand for a size from here on."""
        if isinstance(symbol, torch.SymInt) and symbol.node.expr.is_Symbol:
            self.stand_for(symbol.node.expr, size)

    def stand_for(self, expr: Any, size: Size) -> None:
        """Have a size for a SymPy expression, a symbol or another one, from here on."""
        if expr.is_Symbol:
            self._fixed[str(expr)] = size
        else:
            self._equal[expr] = size

    def of_its_own(self, expr: Any, symbol: Any) -> tirx.Var:
        """Return a new variable, with the bounds of an expression and the name of a symbol."""
        self._fresh += 1
        return self._declared(str(expr), f"{self.name(symbol)}_{self._fresh}")

    def name(self, symbol: Any) -> str:
        """Return the user's name of a symbol of torch, or torch's own."""
        return self._names.get(str(symbol), str(symbol))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget what is bound, defined or met inside: the symbols of a graph within a graph."""
        outer = *(self._variables.copy(), self._defined.copy()), self._fixed.copy(), self._equal
        self._equal = {}
        try:
            yield
        finally:
            self._variables, self._defined, self._fixed, self._equal = outer

    def known(self) -> tuple[tirx.Var, ...]:
        """Return all variables that there are."""
        return tuple(self._variables.values())

    def fresh(self, hint: str) -> tirx.Var:
        """Return a variable that stands for no symbol of torch; it has a value from here on."""
        self._fresh += 1
        name = f"{hint}_{self._fresh}"
        variable = self._declared(name, name)
        self._defined.add(variable)
        return variable

    def _declared(self, symbol: str, name: str) -> tirx.Var:
        self._variables[symbol] = variable = tirx.Var(name, "int64")
        self.arithmetic.declare(variable)
        return variable

    def is_undefined(self, size: Size) -> bool:
        """Tell whether a size is a symbol that nothing has defined yet."""
        return isinstance(size, tirx.Var) and size not in self._defined

    def upper_bounds(self, ranges: Mapping[Any, Any]) -> dict[str, int]:
        """Return the greatest size of each symbol, by the user's name, where there is one.

        Args:
            ranges: The exported program's `range_constraints`.
        """
        found = self._limits(ranges, "upper")
        return {name: most for name, most in found if most < _UNBOUNDED}

    def lower_bounds(self, ranges: Mapping[Any, Any]) -> dict[str, int]:
        """Return the least size of each symbol, by the user's name, where there is one.

        As torch does when it runs an exported program: up to 2 it says nothing, for torch takes a
        size of 0 or 1 apart from all others when it traces.

        Args:
            ranges: The exported program's `range_constraints`.
        """
        found = self._limits(ranges, "lower")
        return {name: least for name, least in found if least > _TRACED}

    def _limits(self, ranges: Mapping[Any, Any], side: str) -> Iterator[tuple[str, int]]:
        """Yield the user's name and the finite bound on one side of each symbol of this table."""
        for symbol, found in ranges.items():
            limit = str(getattr(found, side))
            if str(symbol) in self._variables and limit.isdecimal():
                yield str(self._variables[str(symbol)].name), int(limit)

    def size(self, value: Any) -> Size:
        """Return a size (int or torch.SymInt) as an int or an int64 TIR expression."""
        return value if isinstance(value, int) else self.of_expression(value.node.expr)

    def condition(self, value: torch.SymBool) -> bool | tvm.ir.Expr:
        """Return a condition on sizes: known, or a boolean TIR expression.

        Raises:
            InvalidModel: If it is of a form that has no translation.
        """
        return self._truth(value.node.expr)

    def known_truth(self, value: torch.SymBool) -> bool | None:
        """Tell whether a condition on sizes holds or fails whatever they are; None if it depends.

        Raises:
            InvalidModel: If it is of a form that has no translation.
        """
        condition = self.condition(value)
        return condition if isinstance(condition, bool) else self.arithmetic.known_truth(condition)

    def _truth(self, expr: Any) -> Any:
        kind = type(expr).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return kind == "BooleanTrue"
        if kind in _RELATIONS:
            return _RELATIONS[kind](*(self.of_expression(arg) for arg in expr.args))
        if kind in ("And", "Or", "Not"):
            terms = [self._truth(arg) for arg in expr.args]
            if kind == "Not":
                return not terms[0] if isinstance(terms[0], bool) else tirx.Not(terms[0])
            join, deciding = (tirx.all, False) if kind == "And" else (tirx.any, True)
            if any(term is deciding for term in terms):
                return deciding
            open_terms = [term for term in terms if not isinstance(term, bool)]
            return join(*open_terms) if open_terms else not deciding
        raise InvalidModel(f"a condition of the form {expr} is not supported")

    def shape(self, values: Any) -> list[Size]:
        """Return a whole shape."""
        return [self.size(value) for value in values]

    def of_expression(self, expr: Any) -> Size:
        """Return a SymPy expression of sizes as an int or an int64 TIR expression.

        Raises:
            InvalidModel: If it is of a form that has no translation.
        """
        kind = type(expr).__name__
        if expr in self._equal:
            return self._equal[expr]
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            name = str(expr)
            if name in self._fixed:
                return self._fixed[name]
            if name not in self._variables:
                self._declared(name, self.name(expr))
            if name in self._postponed:
                self._postponed.pop(name)(self._variables[name])
            return self._variables[name]
        if kind in _NARY:
            return functools.reduce(_NARY[kind], [self.of_expression(a) for a in expr.args])
        if kind in _BINARY:
            left, right = (self.of_expression(a) for a in expr.args)
            return _BINARY[kind](self.arithmetic, left, right)
        if kind in ("Pow", "PowByNatural") and expr.args[1].is_Integer and expr.args[1] > 0:
            base = self.of_expression(expr.args[0])
            return functools.reduce(operator.mul, [base] * int(expr.args[1]))
        if kind in ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt"):
            return self._rounded(expr.args[0], kind)
        raise InvalidModel(f"a size of the form {expr} is not supported")

    def _rounded(self, expr: Any, kind: str) -> Size:
        """Return a real expression as an integer: by integers alone where its factor is one."""
        if type(expr).__name__ == "Mul" and len(expr.args) == 2 and expr.args[0].is_Float:
            factor, rest = float(expr.args[0]), expr.args[1]
            if factor.is_integer() and type(rest).__name__ == "ToFloat":
                return self.of_expression(rest.args[0]) * int(factor)
        rounding = {
            "TruncToInt": tirx.trunc,
            "FloorToInt": tirx.floor,
            "CeilToInt": tirx.ceil,
            "RoundToInt": tirx.nearbyint,
        }[kind]
        return tirx.Cast("int64", rounding(self._real(expr)))

    def _real(self, expr: Any) -> tvm.ir.Expr:
        """Return an expression of floats as float64."""
        kind = type(expr).__name__
        if expr.is_number:
            return tirx.const(float(expr), "float64")
        if kind == "ToFloat":
            return tirx.Cast("float64", _as_expr(self.of_expression(expr.args[0])))
        if kind in ("IntTrueDiv", "FloatTrueDiv"):
            left, right = (self._real(arg) for arg in expr.args)
            return left / right
        if kind in ("Add", "Mul"):
            return functools.reduce(_NARY[kind], [self._real(arg) for arg in expr.args])
        if expr.is_integer:
            return tirx.Cast("float64", _as_expr(self.of_expression(expr)))
        raise InvalidModel(f"a size computed by {expr} is not supported")


def named_dims(shape: Iterable[Size]) -> tuple[Dim, ...]:
    """Return a shape as a spec tells it: sizes, and the text of those that are symbolic."""
    return tuple(dim_name(size) for size in shape)


def _as_expr(size: Size) -> tvm.ir.Expr:
    return tirx.const(size, "int64") if isinstance(size, int) else size
