"""What GPU functions of several kernels keep between them is a result of their calls."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from relax_passes.hand_over_workspaces import NAME, hand_over_workspaces
from relax_passes.memory.live_ranges import result_types
from relax_passes.pass_base import PassContext
from tests.cuda.ptxas import SM_80
from tests.relax_passes.pass_checks import check, context
from tir_schedules import Machine


def on_cuda() -> PassContext:
    return PassContext(SM_80, Machine.from_target(SM_80))


def spread(x: te.Tensor) -> list[te.Tensor]:
    """Subtract from each number the mean of its row, which is kept between two kernels."""
    rows, width = x.shape
    k = te.reduce_axis((0, width), "k")
    total = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), "total")
    return [
        te.compute((rows, width), lambda i, j: x[i, j] - total[i] / 8, "rest"),
        te.compute((rows, width), lambda i, j: x[i, j] + total[i], "sum"),
    ]


def module(results: int, rows: object) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_te(lambda x: spread(x)[:results], x)
            out = builder.emit_output(made)
        builder.emit_func_output(out)
    return builder.get()


def kernel(mod: tvm.IRModule) -> tirx.PrimFunc:
    (func,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return func


@pytest.mark.parametrize("rows", [5, tirx.Var("m", "int64")], ids=["static", "symbolic"])
def test_a_workspace_becomes_a_result(rows: object) -> None:
    mod, ctx = module(1, rows), on_cuda()
    x = np.random.default_rng(0).standard_normal((5, 8))
    changed = check(hand_over_workspaces, mod, x.astype("float32"), ctx=ctx)
    assert len(kernel(mod).body.block.alloc_buffers) == 1
    assert len(kernel(changed).body.block.alloc_buffers) == 0
    assert [p.name for p in kernel(changed).params] == ["x", "rest", "total"]
    call = changed["main"].body.blocks[0].bindings[0].value
    shapes = [list(ty.shape.values) for ty in result_types(call.ty_args[0])]
    assert shapes == [[rows, 8], [rows]]
    assert (NAME, "1 functions are given what they keep between their kernels") in ctx.log.fired


def test_several_results_stay_what_they_are() -> None:
    mod = module(2, 4)
    changed, modified = hand_over_workspaces(mod, on_cuda())
    assert modified
    relax.analysis.well_formed(changed)
    tvm.ir.assert_structural_equal(changed["main"].ret_ty, mod["main"].ret_ty)


def test_a_processor_keeps_its_own() -> None:
    check(hand_over_workspaces, module(1, 4), fires=False, ctx=context())
