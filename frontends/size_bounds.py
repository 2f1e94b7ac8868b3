"""Upper bounds that a user promises for symbolic dimensions: `"batch<=32"`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import tvm

# Attribute of `main`: the greatest size of each symbol by its name; TVM's own planner reads it too.
UPPER_BOUNDS = "tir_var_upper_bound"


def split_bound(text: str) -> tuple[str, int | None]:
    """Split `"batch<=32"` into the name and the bound, which is None where none is given.

    Raises:
        ValueError: If what follows "<=" is no positive number, or nothing stands before it, or the
            name holds another comparison: `"batch<32"` would else be a symbol without the bound
            that was meant.
    """
    name, sign, bound = text.partition("<=")
    if re.search("[<>=≤≥]", name):
        raise ValueError(f"an upper bound is written name<=number, not {text!r}")
    if not sign:
        return text, None
    if not name.strip():
        raise ValueError("a dimension with an upper bound has a name, not ''")
    if not re.fullmatch(r"\s*0*[1-9][0-9]*\s*", bound):
        raise ValueError(f"an upper bound is a positive number, not {bound.strip()!r}")
    return name.strip(), int(bound)


def promise(mod: tvm.IRModule, bounds: Mapping[str, int]) -> tvm.IRModule:
    """Return `mod` with the upper bounds of symbols, by name, noted on its function `main`."""
    if not bounds:
        return mod
    main = mod.get_global_var("main")
    functions = {**mod.functions, main: mod["main"].with_attr(UPPER_BOUNDS, dict(bounds))}
    return tvm.IRModule(functions, attrs=mod.attrs)
