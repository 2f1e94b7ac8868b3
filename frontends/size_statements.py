"""Conditions on sizes that a graph states; pass `check_sizes` turns them into checks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx

from frontends.dims import prim
from frontends.main_attributes import with_main_attributes

# An attribute of `main`: by the name of a statement's variable, what an error says.
REASONS = "relaxc.size_reasons"


def state(block: relax.BlockBuilder, condition: Any, name: str) -> str:
    """State a condition on sizes at this place of the function that is being built.

    It is R.match_cast(s, R.Shape([1])) of a shape s = R.shape([Select(condition, 1, 0)]).

    Args:
        block: Builds the function.
        condition: A TIR expression of type bool.
        name: Of the variable; errors name it.

    Returns:
        The variable's name, which may have got a number.
    """
    one_or_none = relax.ShapeExpr([tirx.Select(condition, prim(1), prim(0))])
    holds = block.emit(one_or_none, "holds")
    return str(block.match_cast(holds, relax.ShapeType([prim(1)]), name).name)


def with_reasons(mod: tvm.IRModule, reasons: Mapping[str, str]) -> tvm.IRModule:
    """Return `mod` with what errors say of statements, by name, noted on its function `main`."""
    if not reasons:
        return mod
    return with_main_attributes(mod, {REASONS: dict(reasons)})
