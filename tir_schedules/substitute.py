"""Substitution of variables in TIR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm.tirx import Expr, Var


def substitute(node: Any, values: Mapping[Var, Expr]) -> Any:
    """Return an expression or a statement with the values of some variables in their places."""
    return tvm_ffi.structural_map(node, (Var, lambda var: values.get(var, var)))
