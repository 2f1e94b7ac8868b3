"""E4: concatenations, splits, slices and pads of runs of bytes have no kernel of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

import relaxc
from relax_passes.elide_copies import elide_copies
from relax_passes.lower_operators import lower_operators
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import Pipeline, default_pipeline
from tests.relax_passes.lowered_modules import llvm_context, structure
from tests.relax_passes.memory.branching_models import dense_block, inception

op = relax.op
WEIGHT = relax.const(np.random.default_rng(0).standard_normal((8, 8)).astype("float32"))
NETWORKS = {"dense_block": lambda **more: dense_block(3, **more), "inception": inception}
MOVERS = ("concat", "split", "slice", "pad", "copy")


def graph(build: Callable[..., relax.Expr | list[relax.Expr]], *shapes: tuple) -> tvm.IRModule:
    """Return the module whose `main` computes `build(emit, *params)`."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = build(builder.emit, *params)
            out = builder.emit_output(relax.Tuple(result) if isinstance(result, list) else result)
        builder.emit_func_output(out)
    return builder.get()


def elided(mod: tvm.IRModule, ctx: PassContext | None = None) -> tuple[tvm.IRModule, PassContext]:
    """Lower a module and elide its copies; check what holds for every module."""
    ctx = ctx or llvm_context()
    with ctx.target:
        mod, _ = lower_operators(mod, ctx)
        after, modified = elide_copies(mod, ctx)
        relax.analysis.well_formed(after)
        assert modified or after.same_as(mod)
        again, more = elide_copies(after, ctx)
    assert not more and again.same_as(after)
    return after, ctx


def agree(mod: tvm.IRModule, *inputs: np.ndarray, **options: object) -> relaxc.CompiledModel:
    """Compile with the pass and without; the results are bit-equal. Return the model with it."""
    on = default_pipeline().with_options("plan_memory", poison=True, **options)
    results = []
    for passes in (on, default_pipeline().without("elide_copies")):
        model = relaxc.compile(mod, threads=1, progress=False, passes=passes)
        got = model(*inputs)
        results.append((model, got if isinstance(got, tuple) else (got,)))
    for got, want in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(got, want)
    return results[0][0]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def moving_kernels(model: relaxc.CompiledModel) -> list[str]:
    return [k["name"] for k in model.kernels if any(word in k["name"] for word in MOVERS)]


def mixed(emit: Callable[..., relax.Var], x: relax.Expr) -> relax.Var:
    """Emit a product: what it makes is stored, whoever reads it."""
    return emit(op.matmul(x, WEIGHT))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_concatenate_copy_nothing(name: str) -> None:
    source = NETWORKS[name]()
    model = agree(source, random(1, 16, 9, 9))
    assert moving_kernels(model) == []
    assert model.report.metrics["part_copies"] == 0
    assert model.report.metrics["copies"]["left"] == 0
    without = relaxc.compile(
        source, threads=1, progress=False, passes=default_pipeline().without("elide_copies")
    )
    assert moving_kernels(without) != []


@pytest.mark.parametrize("name", NETWORKS)
def test_branches_that_run_together_write_into_one_buffer(name: str) -> None:
    agree(NETWORKS[name](size=5), random(1, 16, 5, 5), parallel_safe=True)


def test_a_batch_interleaves_the_parts() -> None:
    model = agree(inception(1, batch=2), random(2, 16, 9, 9))
    reasons = {reason for who, _, reason in model.report.declined if who == "elide_copies"}
    assert any("interleaved" in reason for reason in reasons)


def test_a_result_may_be_the_buffer_of_its_parts() -> None:
    def build(e, x, y):
        return e(op.concat([mixed(e, x), mixed(e, y)], 0))

    mod = graph(build, (3, 8), (5, 8))
    after, _ = elided(mod)
    assert structure(after)[-1] == "relax.concat"
    model = agree(mod, random(3, 8), random(5, 8))
    assert moving_kernels(model) == []
    first = model(random(3, 8), random(5, 8))
    second = model(random(3, 8) + 1, random(5, 8))
    assert not np.shares_memory(first, second) and not np.array_equal(first, second)


def test_an_input_is_copied_beside_parts_that_are_written() -> None:
    def build(e, x, y):
        joined = e(op.concat([mixed(e, x), y], 0))
        return mixed(e, joined)

    mod = graph(build, (6, 8), (2, 8))
    model = agree(mod, random(6, 8), random(2, 8))
    assert any("1 parts are copied" in what for _, what in model.report.fired)


def test_a_part_passed_twice_is_copied_once() -> None:
    def build(e, x):
        y = mixed(e, x)
        return mixed(e, e(op.concat([y, y], 0)))

    model = agree(graph(build, (4, 8)), random(4, 8))
    assert any("1 parts are copied" in what for _, what in model.report.fired)


def test_maps_are_left_to_fusion() -> None:
    def build(e, x, y):
        joined = e(op.concat([e(op.exp(x)), e(op.tanh(y))], 0))
        return e(op.nn.relu(joined))

    after, ctx = elided(graph(build, (4, 8), (4, 8)))
    assert "relax.concat" not in structure(after)
    assert ctx.log.declined[-1][2] == "no operand is the stored result of a kernel"


def test_a_map_that_costs_a_kernel_more_is_left_to_fusion() -> None:
    def build(e, x, y):
        joined = e(op.concat([mixed(e, x), e(op.tanh(y))], 0))
        return e(op.nn.relu(joined))

    _, ctx = elided(graph(build, (4, 8), (4, 8)))
    assert "moves fewer bytes" in ctx.log.declined[-1][2]


def test_slices_and_splits_are_read_in_place() -> None:
    def build(e, x):
        y = mixed(e, x)
        parts = e(op.split(y, [3, 5], 0))
        first, second, third = (e(relax.TupleGetItem(parts, k)) for k in range(3))
        cut = e(op.strided_slice(y, [0], [-4], [-1], [1]))
        return [e(op.nn.softmax(part)) for part in (first, second, third, cut)]

    mod = graph(build, (9, 8))
    after, ctx = elided(mod)
    assert structure(after).count("relax.memory.view") == 4
    assert ctx.log.metrics["copies"] == {"elided": 2, "left": 0}
    assert moving_kernels(agree(mod, random(9, 8))) == []


def test_slices_of_an_input_are_read_in_place() -> None:
    def build(e, x):
        row = e(op.strided_slice(x, [0, 1], [1, 2], [2, 6], [1, 1]))
        return e(op.nn.softmax(e(op.reshape(row, (4, 8)))))

    mod = graph(build, (3, 8, 8))
    after, _ = elided(mod)
    assert "relax.memory.view" in structure(after)
    assert moving_kernels(agree(mod, random(3, 8, 8))) == []


def test_parts_along_an_inner_axis_keep_their_kernels() -> None:
    def build(e, x):
        y = mixed(e, x)
        cut = e(op.strided_slice(y, [0, 1], [0, 1], [8, 5]))
        return mixed(e, e(op.concat([cut, cut], 1)))

    _, ctx = elided(graph(build, (8, 8)))
    kept = {what for what in ctx.log.declined if what[0] == "elide_copies"}
    assert len(kept) == 2 and all("interleaved" in reason for _, _, reason in kept)


def test_a_slice_that_is_returned_keeps_its_kernel() -> None:
    def build(e, x):
        return e(op.strided_slice(mixed(e, x), [0], [1], [3], [1]))

    after, ctx = elided(graph(build, (4, 8)))
    assert "relax.memory.view" not in structure(after)
    assert "read by more than kernels" in ctx.log.declined[-1][2]


def test_a_slice_of_a_map_is_left_to_fusion() -> None:
    def build(e, x):
        cut = e(op.strided_slice(e(op.exp(x)), [0], [1], [3], [1]))
        return e(op.nn.softmax(cut))

    after, ctx = elided(graph(build, (4, 8)))
    assert "relax.memory.view" not in structure(after)
    assert "what makes its source" in ctx.log.declined[-1][2]


@pytest.mark.parametrize("widths", [(0, 4), (4, 0), (2, 2)])
def test_channels_are_padded_around_what_is_written_there(widths: tuple[int, int]) -> None:
    def build(e, x):
        y = e(op.matmul(x, relax.const(random(64, 64))))
        padded = e(op.nn.pad(y, [0, 0, *widths, 0, 0], "constant", 1.5))
        return e(op.matmul(padded, relax.const(random(64, 8))))

    mod = graph(build, (1, 64, 64))
    after, _ = elided(mod)
    assert "relax.concat" in structure(after)
    model = agree(mod, random(1, 64, 64))
    assert not any("pad" in kernel["name"] for kernel in model.kernels)


def test_kernels_for_a_gpu_want_aligned_parts() -> None:
    def build(e, x, y):
        return mixed(e, e(op.concat([mixed(e, x), mixed(e, y)], 0)))

    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    for rows, reason in ((4, None), (3, "a part would begin at byte 96, not a multiple of 64")):
        ctx = llvm_context()
        mod = graph(build, (rows, 8), (4, 8))
        with ctx.target:
            mod, _ = lower_operators(mod, ctx)
        ctx.target = target
        after, modified = elide_copies(mod, ctx)
        assert modified == (reason is None)
        assert [what[2] for what in ctx.log.declined if what[0] == "elide_copies"] == (
            [reason] if reason else []
        )
        assert ("relax.concat" in structure(after)) == modified


def test_the_pass_can_be_switched_off() -> None:
    pipeline: Pipeline = default_pipeline().without("elide_copies")
    assert "elide_copies" not in {p.name for p in pipeline.passes()}
