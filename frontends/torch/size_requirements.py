"""What must hold of sizes when a graph runs: pass `check_sizes` checks it, once a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax

from frontends.dims import Dim, DimArithmetic, dim_name, is_static, plain_text, prim
from frontends.errors import InvalidModel
from frontends.size_statements import state
from frontends.torch.source_line import source_line


class SizeRequirements:
    """States conditions on sizes in the function that is being built.

    Attributes:
        reasons: What an error says of each condition, by the name of its statement.
    """

    def __init__(self, block: relax.BlockBuilder, arithmetic: DimArithmetic) -> None:
        """Nothing is stated yet."""
        self.reasons: dict[str, str] = {}
        self._block, self._arithmetic = block, arithmetic

    def require(
        self, node: torch.fx.Node, condition: Any, reason: Callable[[str], str], what: str = "holds"
    ) -> None:
        """State a condition on sizes.

        Args:
            node: What it is needed for.
            condition: A TIR expression of type bool.
            reason: What an error says, given the condition as text.
            what: Names the condition among those of a node.

        Raises:
            InvalidModel: If it holds for no sizes.
        """
        # `a == b` is an expression only once it is asked to be one.
        condition = condition if hasattr(condition, "ty") else condition.asobject()
        truth = self._arithmetic.known_truth(condition)
        if truth:
            return
        told = reason(plain_text(str(condition)))
        if truth is False:
            raise InvalidModel(told, node=node.name)
        self.reasons[state(self._block, condition, f"{node.name}_{what}")] = told

    def require_elements(
        self, node: torch.fx.Node, have: Sequence[Dim], wanted: Sequence[Dim]
    ) -> None:
        """State that two shapes have as many elements: a reshape only renames the memory."""
        left, right = (self._arithmetic.product(shape) for shape in (have, wanted))
        if is_static(left) and is_static(right):
            return  # Relax compares them
        if not self._arithmetic.equal(left, right):
            shown = " and ".join(
                f"({', '.join(map(str, map(dim_name, s)))})" for s in (have, wanted)
            )
            told = f"{node.target}: {shown} have different numbers of elements{source_line(node)}"
            self.require(node, prim(left) == prim(right), lambda _: told, "elements")

    def require_within(self, node: torch.fx.Node, begin: Dim, end: Dim, length: Dim) -> None:
        """State that a slice is within its axis: 0 <= begin <= end <= length."""
        told = f"{node.target}: a slice is not within its axis{source_line(node)}"
        for least, most in ((0, begin), (begin, end), (end, length)):
            if not self._arithmetic.is_nonnegative(self._arithmetic.simplify(most - least)):
                self.require(node, prim(least) <= prim(most), lambda _: told, "bounds")
