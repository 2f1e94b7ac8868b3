"""How large symbolic sizes can become, by the upper bounds that the user promised."""

from __future__ import annotations

from typing import Any

from tvm import DataType, relax, tirx
from tvm.relax import analysis as relax_analysis
from tvm.sym import Analyzer, ConstIntBound

UPPER_BOUNDS = "tir_var_upper_bound"  # attribute of a function: the greatest size of a symbol
_LIMIT = 1 << 47  # more than memory holds, and far from where sums of sizes overflow


class SizeBounds:
    """The greatest sizes of one function's symbols, and of what is computed from them."""

    def __init__(self, func: relax.Function) -> None:
        """Read the bounds from the function's attribute; a symbol without one has none."""
        found = (func.attrs or {}).get(UPPER_BOUNDS) or {}
        self._analyzer = Analyzer()
        self.of_symbols: dict[Any, int] = {}
        for param in func.params:
            for symbol in relax_analysis.tir_vars_in_type(param.ty):
                if str(symbol.name) in found and symbol not in self.of_symbols:
                    self.of_symbols[symbol] = int(found[str(symbol.name)])
                    bound = ConstIntBound(0, self.of_symbols[symbol])
                    self._analyzer.update(symbol, bound)
        known = {s for param in func.params for s in relax_analysis.tir_vars_in_type(param.ty)}
        for block in func.body.blocks:
            for binding in block.bindings:
                self._bound_named_sizes(binding, known)

    def _bound_named_sizes(self, binding: relax.Binding, known: set[tirx.Var]) -> None:
        """Bound new symbols for computed sizes: R.match_cast(R.shape([a + b]), R.Shape([c]))."""
        if not isinstance(binding, relax.MatchCast):
            return
        types = (binding.value.ty, binding.ty)
        if not all(isinstance(ty, relax.ShapeType) and ty.values is not None for ty in types):
            return
        for size, name in zip(*(ty.values for ty in types), strict=False):
            most = self.greatest(size)
            if isinstance(name, tirx.Var) and name not in known and most is not None:
                self._analyzer.update(name, ConstIntBound(0, most))
                known.add(name)

    def greatest(self, size: Any) -> int | None:
        """Return the greatest value a size can have, None if it has no bound."""
        found = int(self._analyzer.const_int_bound(size).max_value)
        return max(found, 0) if found < _LIMIT else None

    def bytes_of(self, ty: relax.TensorType) -> int | None:
        """Return the most bytes a tensor of that type can take, None if it has no bound."""
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            return None
        greatest = [self.greatest(dim) for dim in ty.shape.values]
        if 0 in greatest:
            return 0  # whatever the others are
        total = (DataType(str(ty.dtype)).bits + 7) // 8
        for most in greatest:
            if most is None:
                return None
            total *= most
        return total if total < _LIMIT else None
