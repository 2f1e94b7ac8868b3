"""The verifier names the phase and the binding of each broken invariant."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import relax as R
from tvm.script import tirx as T

from relax_passes.memory.plan_memory import plan_memory
from relax_passes.pass_base import PHASES
from relax_passes.schedule_kernels import schedule_kernels
from relax_passes.verify import VerificationError, verify_phase
from tests.relax_passes.lowered_modules import llvm_context, lowered

op = relax.op


def high_level() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.tanh(x))
        builder.emit_func_output(out)
    return builder.get()


def kernel_module() -> tvm.IRModule:
    return lowered(lambda e, x: e(op.exp(e(op.permute_dims(x)))), (4, 8))


@pytest.mark.parametrize("phase", PHASES[: PHASES.index("lower")])
def test_operators_are_fine_before_lowering(phase: str):
    verify_phase(phase, high_level(), llvm_context())


@pytest.mark.parametrize("phase", PHASES[PHASES.index("lower") :])
def test_operator_left_after_lowering_is_named(phase: str):
    with pytest.raises(VerificationError, match=rf"after {phase}: main: .* calls relax.tanh"):
        verify_phase(phase, high_level(), llvm_context())


def test_views_are_no_operators():
    mod = lowered(lambda e, x: e(op.reshape(e(op.exp(x)), (32,))), (4, 8))
    verify_phase("fuse", mod, llvm_context())


def test_unscheduled_kernel_is_named():
    with pytest.raises(VerificationError, match="after schedule: kernel tir_exp is not scheduled"):
        verify_phase("schedule", lowered(lambda e, x: e(op.exp(x)), (4, 8)), llvm_context())


@pytest.mark.parametrize("parallel", [True, False])
def test_check_in_a_parallel_loop_is_named(parallel: bool):
    @T.prim_func(s_tir=True)
    def checking(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")):
        T.func_attr({"tirx.is_scheduled": 1})
        for i in T.parallel(8) if parallel else T.serial(8):
            with T.Assert(x[i] >= 0, "negative", "ValueError"):
                y[i] = x[i]

    mod = tvm.IRModule({"checking": checking})
    if parallel:
        with pytest.raises(VerificationError, match="kernel checking checks .* parallel loop"):
            verify_phase("schedule", mod, llvm_context())
    else:
        verify_phase("schedule", mod, llvm_context())


def test_call_that_allocates_after_planning_is_named():
    mod, _ = schedule_kernels(kernel_module(), llvm_context())
    with pytest.raises(VerificationError, match="after memory: main: .* relax.call_tir"):
        verify_phase("memory", mod, llvm_context())


def test_planned_module_passes():
    ctx = llvm_context()
    mod, _ = schedule_kernels(kernel_module(), ctx)
    mod, _ = plan_memory(mod, ctx)
    verify_phase("memory", mod, ctx)


def test_ill_formed_relax_is_reported():
    x = relax.Var("x", R.Tensor((4,), "float32"))
    stray = relax.Var("stray", R.Tensor((4,), "float32"))
    body = relax.SeqExpr([], stray)
    mod = tvm.IRModule({"main": relax.Function([x], body, R.Tensor((4,), "float32"))})
    with pytest.raises(VerificationError, match="after raise: ill-formed Relax: .*stray"):
        verify_phase("raise", mod, llvm_context())


def test_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="polish"):
        verify_phase("polish", high_level(), llvm_context())


def overlapping(second_offset: int) -> tvm.IRModule:
    """Return a planned module with two live tensors of 256 bytes, at 0 and `second_offset`."""
    square = lowered(lambda e, x: e(op.permute_dims(x)), (8, 8))
    mod, _ = schedule_kernels(square, llvm_context())
    (kernel,) = (v for v in mod.get_global_vars() if v.name_hint != "main")
    shape, size = relax.ShapeExpr([8, 8]), relax.ShapeExpr([512])
    builder = relax.BlockBuilder(mod)
    x = relax.Var("x", R.Tensor((8, 8), "float32"))
    with builder.function("twice", [x], pure=False):
        storage = builder.emit(op.memory.alloc_storage(size, 0, "global", "uint8"))
        a = builder.emit(op.memory.alloc_tensor(storage, 0, shape, "float32"))
        builder.emit(relax.Call(kernel, [x, a]))
        b = builder.emit(op.memory.alloc_tensor(storage, second_offset, shape, "float32"))
        builder.emit(relax.Call(kernel, [a, b]))
        out = builder.emit(op.builtin.alloc_tensor(shape, "float32", 0, "global"))
        builder.emit(relax.Call(kernel, [b, out]))
        builder.emit_func_output(out)
    functions = {v: f for v, f in builder.finalize().functions.items() if v.name_hint != "main"}
    return tvm.IRModule(functions)


def test_overlap_is_reported_with_the_phase():
    with pytest.raises(VerificationError, match="after memory: twice: .* share bytes from 64"):
        verify_phase("memory", overlapping(64), llvm_context())


@pytest.mark.parametrize("offset", [32, 320])
def test_misplaced_tensor_is_reported(offset: int):
    with pytest.raises(VerificationError, match="misaligned or outside"):
        verify_phase("memory", overlapping(offset), llvm_context())


def test_tensors_side_by_side_pass():
    verify_phase("memory", overlapping(256), llvm_context())
