"""What a frontend notes on the function `main` of a module for the passes to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm


def with_main_attributes(mod: tvm.IRModule, attributes: Mapping[str, Any]) -> tvm.IRModule:
    """Return `mod` with attributes, by name, on its function `main`."""
    main = mod.get_global_var("main")
    functions = {**mod.functions, main: mod["main"].with_attrs(dict(attributes))}
    return tvm.IRModule(functions, attrs=mod.attrs)
