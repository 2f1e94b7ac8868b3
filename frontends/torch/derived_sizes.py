"""Sizes of inputs that are given by others alone: `{0: 2 * Dim("n") + 1}`, and no axis of size n.

A function takes its symbols from axes whose size is a symbol alone. So the axis gets one of its
own, m, that n follows from: n = (m - 1) // 2. A run checks that 2 * n + 1 is m again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import tirx

from frontends.torch.symbolic_shapes import SymbolTable


@dataclass(frozen=True)
class DerivedSize:
    """An axis whose size decides a symbol.

    Attributes:
        node: The input.
        condition: Whether the size is of the form that is promised, a TIR expression of type bool.
        told: What an error says.
    """

    node: torch.fx.Node
    condition: Any
    told: str

    def reason(self, _condition: str) -> str:
        """Return what an error says, as `SizeRequirements.require` asks for it."""
        return self.told


def bind_derived(symbols: SymbolTable, inputs: Sequence[torch.fx.Node]) -> list[DerivedSize]:
    """Let sizes of inputs decide the symbols that no input has for a size.

    Args:
        symbols: Has met no symbol yet.
        inputs: Placeholders, those that are no tensors among them.
    """
    tensors = [node for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    axes = [
        (node, axis, size.node.expr)
        for node in tensors
        for axis, size in enumerate(node.meta["val"].shape)
        if isinstance(size, torch.SymInt)
    ]
    decided = {expr for _, _, expr in axes if expr.is_Symbol}
    found = []
    for node, axis, expr in axes:
        terms = _linear(expr)
        if terms is None or terms[0] in decided:
            continue
        symbol, factor, rest = terms
        size = symbols.of_its_own(expr, symbol)
        root = symbols.arithmetic.floordiv(size - rest, factor)
        symbols.stand_for(symbol, root)
        symbols.stand_for(expr, size)
        decided.add(symbol)
        fits = tirx.all(size == root * factor + rest, root >= 0)
        told = f"input {node.name!r}: the size {size.name} of axis {axis} has to be {expr}"
        found.append(DerivedSize(node, fits, told.replace(str(symbol), symbols.name(symbol))))
    return found


def _linear(expr: Any) -> tuple[Any, int, int] | None:
    """Return (n, a, b) of an expression a * n + b with a > 0; None for another one, and for n."""
    if expr.is_Symbol or len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor, rest = expr.coeff(symbol), expr.subs(symbol, 0)
    if not (factor.is_Integer and rest.is_Integer and factor > 0):
        return None
    return (symbol, int(factor), int(rest)) if factor * symbol + rest == expr else None
