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
        graphs = [f for f in module.functions.values() if isinstance(f, relax.Function)]
        if len(graphs) != 1:
            raise ValueError(f"{entry}: {len(graphs)} Relax functions, expected one")
        graph = tvm_ffi.structural_map(graphs[0], (tvm.ir.GlobalVar, renamed.get))
        builder.add_func(graph.with_attr("global_symbol", entry), entry)
    return builder.get()
