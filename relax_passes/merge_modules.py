"""Put several compiled versions of one model into one module, as one entry function each."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import relax, tirx


def merge_modules(main: tvm.IRModule, versions: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """Return `main` with the function `main` of each version added under the version's name.

    Kernels that two versions share are kept once. Weights that are equal become one constant when
    the module is built.

    Args:
        main: Module after the last phase of the pipeline; its functions keep their names.
        versions: Modules after the last phase by the name of their entry function, which must be
            an identifier that `main` does not use.
    """
    builder = relax.BlockBuilder(main)
    for entry, module in versions.items():
        renamed = {
            var: builder.add_func(func, var.name_hint)
            for var, func in module.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        # A public name of its own keeps the builder from taking two functions for one: it compares
        # what they call by name. Functions of loops call each other, so all are known first.
        graphs = [(v, f) for v, f in module.functions.items() if isinstance(f, relax.Function)]
        for var, func in graphs:
            name = entry if var.name_hint == "main" else f"{entry}_{var.name_hint}"
            renamed[var] = builder.add_func(func.with_attr("global_symbol", name), name)
        for var, func in graphs:
            body = tvm_ffi.structural_map(func, (tvm.ir.GlobalVar, renamed.get))
            builder.update_func(
                renamed[var], body.with_attr("global_symbol", renamed[var].name_hint)
            )
    return builder.get()
