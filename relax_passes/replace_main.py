"""Put rewritten bindings back into a module's `main`."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax


def replace_main(
    mod: tvm.IRModule, blocks: Sequence[relax.BindingBlock], result: relax.Expr
) -> tvm.IRModule:
    """Return `mod` with the body of `main` replaced; types are derived anew where missing."""
    main = mod["main"]
    body = relax.SeqExpr(list(blocks), result)
    func = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    updated.update_func(mod.get_global_var("main"), relax.BlockBuilder(mod).normalize(func))
    return updated
