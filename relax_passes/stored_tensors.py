"""Which tensors fusion will store, not compute inside of what reads them."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.analysis.category import Category
from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.readers import readers_of
from relax_passes.fusion_groups import Categories, callee_of


class StoredTensors:
    """The tensors of one dataflow block before it is fused; `bind` tells of what is replaced."""

    def __init__(self, block: relax.DataflowBlock, mod: tvm.IRModule) -> None:
        self.readers = readers_of(block)
        self._categories = Categories(mod)
        self._values: dict[relax.Expr, Any] = {
            b.var: b.value for b in block.bindings if isinstance(b, relax.VarBinding)
        }

    def bind(self, var: relax.Var, value: relax.Expr) -> None:
        """Note that a variable stands for another value now."""
        self._values[var] = value

    def category(self, binding: relax.Binding) -> Category:
        """Return the category of what a binding calls."""
        return self._categories.of(callee_of(binding))[0]

    def is_stored(self, value: relax.Expr, *, param: bool = False) -> bool:
        """Tell whether fusion will store a tensor, not compute it inside of what reads it.

        Args:
            value: The tensor.
            param: What to answer for one that no kernel of this block makes.
        """
        viewed = False
        made = self._values.get(value)
        while made is not None and operator_name(made) == "reshape":
            value, viewed = made.args[0], True
            made = self._values.get(value)
        if operator_name(made) == "concat":
            return True
        if made is None or operator_name(made) != "call_tir":
            return param
        if viewed:  # no kernel reaches through a view
            return True
        category, _ = self._categories.of(made.args[0])
        if category > Category.INJECTIVE or len(self.readers.get(value, ())) > 1:
            return True
        # A map that ends an anchor's epilogue is stored with it.
        return category <= Category.BROADCAST and any(
            isinstance(operand, relax.Var) and self._ends_an_epilogue(operand, value)
            for operand in made.args[1].fields
        )

    def _ends_an_epilogue(self, operand: relax.Var, value: relax.Var) -> bool:
        if len(self.readers.get(operand, ())) != 1 or not _same_shape(operand, value):
            return False
        made = self._values.get(operand)
        if made is None or operator_name(made) != "call_tir":
            return False
        category, _ = self._categories.of(made.args[0])
        if category in (Category.REDUCTION, Category.COMPLEX_OUT_FUSABLE):
            return True
        return category <= Category.BROADCAST and self.is_stored(operand)


def _same_shape(a: relax.Var, b: relax.Var) -> bool:
    return bool(tvm_ffi.structural_equal(a.ty, b.ty))
