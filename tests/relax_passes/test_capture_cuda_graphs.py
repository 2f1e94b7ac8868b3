"""Kernels that touch the arena and constants alone are recorded as graphs; others are launched.

tests/cuda/test_emulator.py shows that recorded graphs are launched and give the right numbers.
"""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op as R

from relax_passes.capture_cuda_graphs import RECORDED, capture_cuda_graphs, record_marked_graphs
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import context
from tir_schedules import Machine


def gpu() -> PassContext:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    return PassContext(target, Machine.from_target(target))


def softmaxes(count: int, rows: int | tirx.Var = 4) -> tvm.IRModule:
    """Return a module of some softmaxes, one after the other, over different axes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 64, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for at in range(count):
                value = builder.emit(R.nn.softmax(value, axis=1 + at % 2))
            result = builder.emit_output(R.nn.relu(value))
        builder.emit_func_output(result)
    return builder.get()


def planned(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
    return default_pipeline().without("capture_cuda_graphs").run(mod, ctx)


@pytest.fixture(scope="module")
def four() -> tvm.IRModule:
    return planned(softmaxes(4), gpu())


def recorded_functions(mod: tvm.IRModule) -> list[str]:
    return [v.name_hint for v in mod.functions if "cuda_graph_capture" in v.name_hint]


def test_the_kernels_in_the_middle_are_one_graph(four: tvm.IRModule) -> None:
    ctx = gpu()
    changed, modified = capture_cuda_graphs(four, ctx)
    assert modified
    assert changed["main"].attrs[RECORDED] == 1
    assert ctx.log.metrics["launches"] == 3  # the first kernel, the graph, the last kernel
    (name, what) = ctx.log.fired[-1]
    assert (name, what) == (
        "capture_cuda_graphs",
        "3 launches a run, 1 of them graphs, for 4 kernels",
    )
    assert not capture_cuda_graphs(changed, ctx)[1]
    built = record_marked_graphs(changed)
    assert len(recorded_functions(built)) == 1
    relax.analysis.well_formed(built)


def test_what_is_not_marked_is_not_recorded(four: tvm.IRModule) -> None:
    assert record_marked_graphs(four).same_as(four)
    assert not capture_cuda_graphs(four, context())[1]


def test_reasons() -> None:
    ctx = gpu()
    capture_cuda_graphs(planned(softmaxes(1), ctx), ctx)
    assert ctx.log.declined[-1][2] == "every kernel reads an argument or writes a result"
    n = tirx.Var("n", "int64")
    capture_cuda_graphs(planned(softmaxes(4, n), ctx), ctx)
    assert "symbolic" in ctx.log.declined[-1][2]


def test_a_graph_of_one_kernel_returns_something() -> None:
    """It writes what was allocated before it; TVM's machine wants a result all the same."""
    changed, _ = capture_cuda_graphs(planned(softmaxes(3), gpu()), gpu())
    built = record_marked_graphs(changed)
    (name,) = recorded_functions(built)
    assert len(built[name].ret_ty.fields) == 1
    relax.analysis.well_formed(built)
