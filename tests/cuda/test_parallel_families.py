"""Gathers, scatters and sorts on CUDA: many threads for each, and no kernel of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import relax as R
from tvm.sym import Analyzer
from tvm.tirx import PrimFunc

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.cuda.ptxas import SM_80, cuda_source, kernel_usage
from tir_schedules import Machine

Emit = Callable[..., relax.Expr]
ROWS, WIDTH = 64, 1000
FAMILIES: dict[str, Emit] = {
    "take": lambda x, at: op.take(x, at, axis=0, mode="clip"),
    "gather": lambda x, at: op.gather_elements(x, at, axis=1),
    "scatter": lambda x, at: op.scatter_elements(x, at, op.astype(at, "float32"), axis=1),
    "scatter_add": lambda x, at: op.scatter_elements(
        x, at, op.astype(at, "float32"), axis=1, reduction="add"
    ),
    "sort": lambda x, _: op.sort(x, axis=1),
    "argsort": lambda x, _: op.argsort(x, axis=1, dtype="int64"),
    "topk": lambda x, _: op.topk(x, k=5, axis=1),
}


def scheduled(emit: Emit) -> dict[str, PrimFunc]:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((ROWS, WIDTH), "float32"))
    at = relax.Var("at", R.Tensor((ROWS, WIDTH), "int64"))
    with builder.function("main", [x, at]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(emit(x, at)))
        builder.emit_func_output(result)
    ctx = PassContext(SM_80, Machine.from_target(SM_80))
    module = default_pipeline().until("schedule").run(builder.get(), ctx)
    return {v.name_hint: f for v, f in module.functions.items() if isinstance(f, PrimFunc)}


def threads_of(func: PrimFunc) -> list[int]:
    """Return the most threads of each axis of a function's kernels, those of one block left out."""
    found: list[int] = []
    analyzer = Analyzer()

    def visit(stmt: tirx.AttrStmt) -> None:
        if stmt.attr_key == "thread_extent" and str(stmt.node.thread_tag).startswith("threadIdx"):
            found.append(analyzer.const_int_bound(stmt.value).max_value)

    def visit_loop(loop: tirx.For) -> None:
        binding = loop.thread_binding
        if binding is not None and str(binding.thread_tag).startswith("threadIdx"):
            found.append(int(loop.extent))

    tvm_ffi.structural_walk(
        func.body, [(tirx.AttrStmt, visit), (tirx.For, visit_loop)], order="pre"
    )
    return found


@pytest.fixture(scope="module")
def families() -> dict[str, dict[str, PrimFunc]]:
    return {name: scheduled(emit) for name, emit in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_kernel_has_a_warp_at_least(
    name: str, families: dict[str, dict[str, PrimFunc]]
) -> None:
    threads = {kernel: threads_of(func) for kernel, func in families[name].items()}
    assert threads
    assert {kernel: each for kernel, each in threads.items() if min(each, default=0) < 32} == {}


def test_no_kernel_spills(families: dict[str, dict[str, PrimFunc]], nvcc: str) -> None:
    kernels = {
        f"{name}_{kernel}": func
        for name, of_family in families.items()
        for kernel, func in of_family.items()
    }
    usage = kernel_usage(nvcc, cuda_source(kernels))
    assert {name: used for name, used in usage.items() if used.spills} == {}
    assert all(used.registers <= 64 and used.shared <= 48 << 10 for used in usage.values())
