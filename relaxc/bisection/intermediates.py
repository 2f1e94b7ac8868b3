"""The first tensor that differs between two versions of a graph, both run to the end."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax
from tvm.tirx import IntImm


@dataclass(frozen=True)
class Exposed:
    """A module that returns its intermediates: their names, one for each output, in order."""

    module: tvm.IRModule
    names: list[str]


def expose_intermediates(mod: tvm.IRModule) -> Exposed | None:
    """Let `main` return every tensor of static shape it computes, or None if there is none.

    Only what stands in one of its dataflow blocks counts: branches keep what is theirs.
    """
    main = mod["main"]
    shown: dict[relax.Var, relax.Var] = {}
    for block in main.body.blocks:
        if isinstance(block, relax.DataflowBlock):
            for var in (binding.var for binding in block.bindings):
                if _is_static_tensor(var):
                    inner = isinstance(var, relax.DataflowVar)
                    shown[var] = relax.Var(var.name, var.ty) if inner else var
    if not shown:
        return None
    blocks = [
        tvm_ffi.structural_map(block, (relax.Var, lambda var: shown.get(var, var)))
        for block in main.body.blocks
    ]
    body = relax.SeqExpr(blocks, relax.Tuple(list(shown.values())))
    result = relax.TupleType([var.ty for var in shown.values()])
    func = relax.Function(main.params, body, result, main.is_pure, main.attrs)
    builder = relax.BlockBuilder(mod)
    builder.update_func(mod.get_global_var("main"), builder.normalize(func))
    return Exposed(builder.get(), [var.name for var in shown.values()])


def _is_static_tensor(var: relax.Var) -> bool:
    shape = getattr(getattr(var.ty, "shape", None), "values", None)
    return shape is not None and all(isinstance(dim, IntImm) for dim in shape)
