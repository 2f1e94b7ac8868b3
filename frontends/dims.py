"""Arithmetic on dimensions: Python integers where static, TIR expressions where symbolic.

Every symbolic dimension is a size, so its symbol is known to be at least zero; with that, ONNX's
truncating division equals floor division and simplifies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer, ConstIntBound

Dim = Any  # int | tvm.tirx.PrimExpr of dtype int64


class DimArithmetic:
    """Simplify dimension expressions, knowing that symbols are sizes."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()

    def declare(self, symbol: tirx.Var) -> None:
        """State that `symbol` is a size (>= 0)."""
        self._analyzer.update(symbol, ConstIntBound(0, ConstIntBound.POS_INF))

    def at_least(self, symbol: tirx.Var, least: int) -> None:
        """State that `symbol` is at least `least`, which a check of the model sees to."""
        known = self._analyzer.const_int_bound(symbol)
        if least > known.min_value:
            self._analyzer.update(symbol, ConstIntBound(least, known.max_value), True)

    def simplify(self, dim: Dim) -> Dim:
        """Return an int if `dim` is one, else the simplified expression."""
        if is_static(dim):
            return int(dim)
        return as_dim(self._analyzer.simplify(dim))

    def is_nonnegative(self, dim: Dim) -> bool:
        """Tell whether `dim` is surely >= 0."""
        if is_static(dim):
            return int(dim) >= 0
        return bool(self._analyzer.const_int_bound(dim).min_value >= 0)

    def positive_where_symbols_are(self, dim: Dim) -> bool:
        """Tell whether `dim` is surely not 0 where no symbol in it is: n * 3 is, n // 2 is not."""
        if is_static(dim):
            return bool(dim != 0)
        analyzer = Analyzer()
        for symbol in symbols_of(dim):
            analyzer.update(symbol, ConstIntBound(1, ConstIntBound.POS_INF))
        return bool(analyzer.const_int_bound(dim).min_value > 0)

    def known_truth(self, condition: Any) -> bool | None:
        """Tell whether a condition on sizes surely holds, or surely fails; None if it depends."""
        found = self._analyzer.simplify(condition)
        return bool(found.value) if isinstance(found, tirx.IntImm) else None

    def equal(self, left: Dim, right: Dim) -> bool:
        """Tell whether both are surely the same number."""
        if is_static(left) and is_static(right):
            return bool(left == right)
        if not is_static(left) and not is_static(right) and left.same_as(right):
            return True
        difference = self.simplify(left - right)
        return is_static(difference) and difference == 0

    def truncdiv(self, left: Dim, right: Dim) -> Dim:
        """Divide rounding toward zero, as ONNX's integer Div does."""
        if is_static(left) and is_static(right):
            quotient = abs(int(left)) // abs(int(right))
            return quotient if (left >= 0) == (right >= 0) else -quotient
        both_positive = self.is_nonnegative(left) and self.is_nonnegative(right)
        divide = tirx.floordiv if both_positive else tirx.truncdiv
        return self._divided(divide, left, right)

    def floordiv(self, left: Dim, right: Dim) -> Dim:
        """Divide rounding down, as Python's // does."""
        if is_static(left) and is_static(right):
            return int(left) // int(right)
        return self._divided(tirx.floordiv, left, right)

    def floormod(self, left: Dim, right: Dim) -> Dim:
        """Return the remainder with the divisor's sign, as ONNX's Mod with fmod=0 does."""
        if is_static(left) and is_static(right):
            return int(left) % int(right)
        return self._divided(tirx.floormod, left, right)

    def _divided(self, divide: Callable[[Any, Any], Any], left: Dim, right: Dim) -> Dim:
        """Divide by what is or may turn out to be zero, which would end the process: by 1 then."""
        if is_static(right) and right == 0:
            return self.simplify(left)
        result = self.simplify(divide(prim(left), prim(right)))
        if is_static(right) or not _divides_by_a_symbol(result):
            return result
        bound = self._analyzer.const_int_bound(right)
        if bound.min_value > 0 or bound.max_value < 0:
            return result
        divisor = tirx.max(right, 1) if bound.min_value == 0 else _never_zero(right)
        return self.simplify(divide(prim(left), divisor))

    def minimum(self, left: Dim, right: Dim) -> Dim:
        """Return the smaller one."""
        if is_static(left) and is_static(right):
            return min(int(left), int(right))
        if self._surely_at_most(left, right):
            return left
        if self._surely_at_most(right, left):
            return right
        return self.simplify(tirx.min(prim(left), prim(right)))

    def maximum(self, left: Dim, right: Dim) -> Dim:
        """Return the greater one."""
        if is_static(left) and is_static(right):
            return max(int(left), int(right))
        if self._surely_at_most(left, right):
            return right
        if self._surely_at_most(right, left):
            return left
        return self.simplify(tirx.max(prim(left), prim(right)))

    def _surely_at_most(self, left: Dim, right: Dim) -> bool:
        """Prove left <= right from bounds, and from n // c <= n for sizes n."""
        if self.is_nonnegative(self.simplify(right - left)):
            return True
        if isinstance(left, tirx.FloorDiv) and is_static(divisor := as_dim(left.b)):
            inner = as_dim(left.a)
            return (
                divisor >= 1 and self.is_nonnegative(inner) and self._surely_at_most(inner, right)
            )
        return False

    def product(self, dims: Iterable[Dim]) -> Dim:
        """Return the number of elements of a shape."""
        total: Dim = 1
        for dim in dims:
            total = total * dim
        return self.simplify(total)


def _divides_by_a_symbol(dim: Dim) -> bool:
    """Tell whether computing a size divides by something not known now."""
    found = False

    def look(node: Any) -> None:
        nonlocal found
        found = found or not isinstance(node.b, tirx.IntImm)

    kinds = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
    tvm_ffi.structural_walk(prim(dim), (kinds, look))
    return found


def _never_zero(dim: Dim) -> Dim:
    return tirx.Select(dim == 0, prim(1), dim)


def is_static(dim: Any) -> bool:
    """Tell whether `dim` is a plain integer."""
    return not isinstance(dim, tvm.ir.Expr)


def as_dim(dim: Any) -> Dim:
    """Return `dim` as int where it is an integer constant, as the expression elsewhere."""
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    return dim if isinstance(dim, tvm.ir.Expr) else int(dim)


def prim(dim: Dim) -> Any:
    """Return `dim` as int64 TIR expression."""
    return tirx.IntImm("int64", int(dim)) if is_static(dim) else dim


def depends_only_on(dim: Dim, visible: frozenset[tirx.Var]) -> bool:
    """Tell whether a size is an expression of the given symbols."""
    return symbols_of(dim) <= visible


def symbols_of(dim: Dim) -> frozenset[tirx.Var]:
    """Return the symbols that a size is computed from."""
    if is_static(dim):
        return frozenset()
    return frozenset(relax.analysis.tir_vars_in_type(relax.ShapeType([dim])))


def dims_of(expr: relax.Expr) -> list[Dim]:
    """Return the shape of a bound Relax tensor."""
    return [as_dim(dim) for dim in expr.ty.shape.values]


def dtype_of(expr: relax.Expr) -> str:
    """Return the dtype of a Relax tensor."""
    return str(expr.ty.dtype.dtype)


def all_static(dims: Sequence[Dim]) -> bool:
    """Tell whether a shape has no symbolic dimension."""
    return all(is_static(dim) for dim in dims)


def dim_name(dim: Dim) -> int | str:
    """Return what a user sees: the size, the symbol's name, or the expression's text."""
    if is_static(dim):
        return int(dim)
    if isinstance(dim, tirx.Var):
        return str(dim.name)
    return plain_text(str(dim))


def plain_text(text: str) -> str:
    """Return what TVM prints as a reader writes it: max(n, 2) for T.max(n, T.int64(2))."""
    return re.sub(r"\bT\.(?=\w+\()", "", re.sub(r"T\.int64\((-?\d+)\)", r"\1", text))
