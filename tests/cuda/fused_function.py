"""One operator or a chain of them as the fused TIR function that a schedule rule gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax, tirx
from tvm.script import relax as R

from tests.cuda.ptxas import SM_80

Shape = Sequence[int | str]


def fused_function(
    emit: Callable[..., relax.Expr], shapes: Sequence[Shape], dtype: str = "float32"
) -> tirx.PrimFunc:
    """Return what TVM's legalization and fusion make of tensors of one type; names are symbols."""
    symbols = {d: tirx.Var(d, "int64") for shape in shapes for d in shape if isinstance(d, str)}
    params = [
        relax.Var(f"x{at}", R.Tensor(tuple(symbols.get(d, d) for d in shape), dtype))
        for at, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(emit(*params)))
        builder.emit_func_output(result)
    module = builder.get()
    with SM_80:
        for step in (
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ):
            module = step(module)
    (func,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    return func
