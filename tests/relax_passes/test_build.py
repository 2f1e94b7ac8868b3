"""Building the executable: planned modules run, save, and load again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relax, tirx

from relax_passes.build import build_executable
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.schedule_kernels import schedule_kernels
from tests.relax_passes.lowered_modules import call, llvm_context, lowered, random_inputs
from tests.tir_schedules.llvm.scheduled_kernel import libm_calls

op = relax.op


def executable(mod: tvm.IRModule) -> relax.VMExecutable:
    ctx = llvm_context()
    for graph_pass in (schedule_kernels, plan_memory):
        mod, _ = graph_pass(mod, ctx)
    return build_executable(mod, ctx)


def two_layers(emit, x):
    weight = relax.const(np.eye(8, dtype="float32")[::-1].copy())
    return emit(op.nn.relu(emit(op.matmul(emit(op.tanh(x)), weight))))


def test_planned_module_runs():
    (value,) = random_inputs((4, 8))
    (got,) = call(executable(lowered(two_layers, (4, 8))), value)
    np.testing.assert_allclose(got, np.maximum(np.tanh(value)[:, ::-1], 0), rtol=1e-5, atol=1e-6)


def test_exported_library_gives_the_same_numbers(tmp_path: Path):
    built = executable(lowered(two_layers, (4, 8)))
    (value,) = random_inputs((4, 8))
    (want,) = call(built, value)
    built.export_library(str(tmp_path / "model.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "model.so"))
    (got,) = call(loaded, value)
    np.testing.assert_array_equal(got, want)


def test_one_executable_serves_every_size_of_a_symbolic_dimension():
    n = tirx.Var("n", "int64")
    built = executable(lowered(two_layers, (n, 8)))
    for rows in (1, 3, 17):
        (value,) = random_inputs((rows, 8))
        (got,) = call(built, value)
        want = np.maximum(np.tanh(value)[:, ::-1], 0)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_one_arena_is_allocated_per_call():
    def build(e, x):
        for _ in range(5):
            x = e(op.tanh(e(op.permute_dims(x))))
        return x

    text = executable(lowered(build, (8, 8))).as_text()
    storages = [line for line in text.splitlines() if "call  vm.builtin.alloc_storage" in line]
    assert len(storages) == 2  # the arena, and the output that the caller keeps


def test_elementary_functions_are_polynomials() -> None:
    built = executable(lowered(lambda e, x: e(op.tanh(e(op.exp(e(op.erf(x)))))), (4, 8)))
    asm = built.mod.imports[0].inspect_source("asm")
    assert "__tvm_ffi_erf" in asm
    assert not libm_calls(asm)
