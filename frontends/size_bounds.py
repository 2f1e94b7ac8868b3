"""Bounds that a user promises for symbolic dimensions: `"batch<=32"`, `Dim("n", min=3, max=9)`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import tvm

from frontends.main_attributes import with_main_attributes

# Attributes of `main`: the greatest and the least size of symbols by their names; TVM's own planner
# reads them too.
UPPER_BOUNDS = "tir_var_upper_bound"
LOWER_BOUNDS = "tir_var_lower_bound"


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


def promise(
    mod: tvm.IRModule, upper: Mapping[str, int], lower: Mapping[str, int] | None = None
) -> tvm.IRModule:
    """Return `mod` with the bounds of symbols, by name, noted on its function `main`."""
    noted = {UPPER_BOUNDS: dict(upper), LOWER_BOUNDS: dict(lower or {})}
    attrs = {name: bounds for name, bounds in noted.items() if bounds}
    if not attrs:
        return mod
    return with_main_attributes(mod, attrs)


def promised_ranges(mod: tvm.IRModule) -> dict[str, tuple[int, int | None]]:
    """Return the least and the greatest size (None: no bound) of symbols with a promised bound."""
    attrs = mod["main"].attrs or {}
    lower, upper = ({str(n): int(b) for n, b in (attrs.get(k) or {}).items()} for k in
                    (LOWER_BOUNDS, UPPER_BOUNDS))  # fmt: skip
    return {name: (lower.get(name, 0), upper.get(name)) for name in sorted({*lower, *upper})}
