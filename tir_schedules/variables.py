"""Variables in TIR: what uses them, and others in their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm.tirx import Expr, Var


def uses(node: object, var: Var) -> bool:
    """Tell whether an expression or a statement uses a variable."""
    return any(used.same_as(var) for used in used_in(node))


def used_in(node: object) -> list[Var]:
    """Return the variables that an expression, a statement or a function uses, with repeats."""
    if isinstance(node, Var):
        return [node]
    found: list[Var] = []
    tvm_ffi.structural_walk(node, (Var, found.append), order="pre")
    return found


def substitute(node: Any, values: Mapping[Var, Expr]) -> Any:
    """Return an expression or a statement with the values of some variables in their places."""
    return tvm_ffi.structural_map(node, (Var, lambda var: values.get(var, var)))
