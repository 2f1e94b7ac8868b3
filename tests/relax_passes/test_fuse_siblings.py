"""Kernels that share rows become one with several results: structure, bytes, bits, guards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.analysis.cost import kernel_cost
from relax_passes.analysis.overwrite import overwritable_operands
from relax_passes.build import build_executable
from relax_passes.duplicate_cheap_producers import duplicate_cheap_producers
from relax_passes.fuse_operators import fuse_operators
from relax_passes.fuse_siblings import fuse_siblings
from relax_passes.memory.order_bindings import order_bindings
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.schedule_kernels import schedule_kernels
from relax_passes.verify import verify_phase
from tests.relax_passes.lowered_modules import (
    Shape,
    call,
    llvm_context,
    lowered,
    random_inputs,
    structure,
)

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]
Build = Callable[..., object]


def fused(build: Build, *shapes: Shape, dtype: str = "float32") -> tvm.IRModule:
    """Return a module as the pass finds it: after `fuse_operators`."""
    mod = lowered(build, *shapes, dtype=dtype)
    for graph_pass in (duplicate_cheap_producers, fuse_operators):
        mod, _ = graph_pass(mod, llvm_context())
    return mod


def run(mod: tvm.IRModule, inputs: list[np.ndarray], **memory: bool) -> list[np.ndarray]:
    """Run a fused module the way a compiled model does."""
    ctx = llvm_context()
    with ctx.target:
        mod, _ = schedule_kernels(mod, ctx)
        mod, _ = order_bindings(mod, ctx)
        mod, _ = plan_memory.with_options(**memory)(mod, ctx)
    verify_phase("memory", mod, ctx)
    return call(build_executable(mod, ctx), *inputs)


def kernels(mod: tvm.IRModule) -> list[str]:
    return [name for name in structure(mod) if not name.startswith("relax.")]


def moved(mod: tvm.IRModule) -> int:
    """Return the bytes that the kernels of a module read and write, each called once."""
    return sum(kernel_cost(f)[1] for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))


def check(
    build: Build,
    *shapes: Shape,
    left: int,
    dtype: str = "float32",
    numbers: tuple[tuple[int, ...], ...] = (),
    chosen: GraphPass = fuse_siblings,
) -> tuple[tvm.IRModule, PassContext]:
    """Run the pass; it must leave `left` kernels, the same bits, and nothing for a second run."""
    before = fused(build, *shapes, dtype=dtype)
    ctx = llvm_context()
    after, modified = chosen(before, ctx)
    relax.analysis.well_formed(after)
    assert len(kernels(after)) == left, (kernels(after), ctx.log.declined)
    assert modified == (left < len(kernels(before)))
    assert modified or after.same_as(before)
    for again in (chosen, fuse_operators, duplicate_cheap_producers):
        assert again(after, llvm_context())[1] is False
    if modified:
        assert moved(after) < moved(before)
        assert ctx.log.metrics["kernel_count"] == left
        assert [what for name, what in ctx.log.fired if "bytes of traffic" in what]
    if any(isinstance(size, int) for shape in shapes for size in shape) or numbers:
        inputs = [x.astype(dtype) for x in random_inputs(*(numbers or shapes))]
        if dtype.startswith("int"):
            inputs = [(20 * x).astype(dtype) for x in random_inputs(*(numbers or shapes))]
        for memory in ({}, {"poison": True}, {"reuse": False, "in_place": False}):
            for want, got in zip(run(before, inputs), run(after, inputs, **memory), strict=True):
                np.testing.assert_array_equal(got, want)
    return after, ctx


def mean_and_variance(e: Emit, x: relax.Var) -> list[relax.Var]:
    mean = e(op.mean(x, [-1], keepdims=True))
    centred = e(op.subtract(x, mean))
    return [mean, e(op.mean(e(op.multiply(centred, centred)), [-1], keepdims=True))]


def test_mean_and_variance_read_the_row_once() -> None:
    after, ctx = check(mean_and_variance, (24, 40), left=1)
    # x in one kernel instead of two, and the mean as the variance's operand no more.
    before = fused(mean_and_variance, (24, 40))
    assert moved(before) - moved(after) == 4 * 24 * 40 + 4 * 24
    assert ("fuse_siblings", "1 kernels joined others, which saves 3936 bytes of traffic") in (
        ctx.log.fired
    )


def test_the_call_has_both_results() -> None:
    after, _ = check(lambda e, x: [e(op.sum(x, [1])), e(op.max(x, [1]))], (6, 40), left=1)
    block = after["main"].body.blocks[0]
    together, first, second, _ = block.bindings
    assert [str(field.shape) for field in together.var.ty.fields] == ["R.shape([6])"] * 2
    assert [part.value.index for part in (first, second)] == [0, 1]
    assert together.value.ty_args[0] == together.var.ty


@pytest.mark.parametrize("shape", [(5, 7), (3, 101), (1, 64), (2, 3, 33), (0, 8), (4, 1)])
def test_rows_of_any_length(shape: tuple[int, ...]) -> None:
    def build(e: Emit, x: relax.Var) -> object:
        return [*mean_and_variance(e, x), e(op.max(x, [-1], keepdims=True))]

    before = fused(build, shape)
    after, _ = fuse_siblings(before, llvm_context())
    assert len(kernels(after)) == {0: 3, 4: 2}.get(shape[0] * shape[-1], 1)
    inputs = random_inputs(shape)
    for want, got in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axes", [[0], [1], [2], [1, 2], None])
def test_reductions_along_the_same_axes(axes: list[int] | None) -> None:
    check(lambda e, x: [e(op.sum(x, axes)), e(op.max(x, axes))], (4, 6, 16), left=1)


@pytest.mark.parametrize(("dtype", "wide"), [("int32", 1), ("int8", 1), ("float64", 1)])
def test_other_types(dtype: str, wide: int) -> None:
    def build(e: Emit, x: relax.Var) -> object:
        return [e(op.negative(x)), e(op.greater(x, relax.const(0, dtype))), e(op.max(x, [1]))]

    check(build, (24, 40), left=wide, dtype=dtype)


def test_maps_of_one_tensor() -> None:
    check(lambda e, x: [e(op.exp(x)), e(op.negative(x)), e(op.abs(x))], (6, 40), left=1)


def test_an_intermediate_with_a_reader_outside_is_stored_on_the_way() -> None:
    """The sum is an output and an operand: one kernel writes it and goes on."""

    def build(e: Emit, x: relax.Var, y: relax.Var) -> object:
        a = e(op.add(x, y))
        return [a, e(op.nn.layer_norm(a, *(relax.const(np.ones(40, "float32")),) * 2, axes=[1]))]

    check(build, (24, 40), (24, 40), left=1)


def test_an_intermediate_that_only_the_group_reads_is_not_stored() -> None:
    def build(e: Emit, x: relax.Var, y: relax.Var) -> object:
        a = e(op.tanh(e(op.tanh(e(op.add(x, y))))))
        return [e(op.sum(a, [1])), e(op.max(a, [1]))]

    after, _ = check(build, (24, 40), (24, 40), left=1)
    (call_tir, *_) = after["main"].body.blocks[0].bindings
    assert len(call_tir.var.ty.fields) == 2


def test_rows_of_a_sum_that_keeps_its_axis_as_1() -> None:
    """The axis of extent 1 is a row of the sum alone; the map runs over 40 there."""
    check(lambda e, x: [e(op.subtract(x, e(op.sum(x, [1], keepdims=True))))], (24, 40), left=1)


def test_a_chain_is_left_to_fuse_operators() -> None:
    mod = lowered(lambda e, x: e(op.tanh(e(op.exp(x)))), (6, 40))
    assert fuse_siblings(mod, llvm_context())[1] is False


def test_many_readers_of_one_tensor() -> None:
    def build(e: Emit, x: relax.Var) -> object:
        return [e(op.multiply(x, relax.const(np.float32(i + 2)))) for i in range(20)]

    check(build, (6, 40), left=3)
    check(build, (6, 40), left=10, chosen=fuse_siblings.with_options(max_results=2))


def test_symbolic_sizes() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    check(mean_and_variance, (n, 40), left=1, numbers=((9, 40),))
    check(mean_and_variance, (n, m), left=1, numbers=((9, 13),))
    check(lambda e, x: [e(op.exp(x)), e(op.abs(x))], (n, m), left=1, numbers=((3, 5),))


def test_a_size_of_a_match_cast_stays_before_its_kernels() -> None:
    """The kernel of the later reader may not move before the cast that names its size."""
    n, k = (tirx.Var(name, "int64") for name in "nk")

    def build(e: Emit, x: relax.Var) -> object:
        a = e(op.exp(x))
        cast = e.__self__.match_cast(a, relax.TensorType((k, 8), "float32"))
        return [e(op.abs(x)), a, e(op.negative(cast))]

    after, _ = check(build, (n, 8), left=2, numbers=((3, 8),))
    order = [type(b).__name__ for b in after["main"].body.blocks[0].bindings]
    names = structure(after)
    assert order.index("MatchCast") > 0 and "tir_negative" in names[-1]


def test_no_cycle_through_another_kernel() -> None:
    """max reads x and what sum leads to; sum reads x: together each would wait for the other."""

    def build(e: Emit, x: relax.Var, w: relax.Var) -> object:
        a = e(op.sum(x, [1], keepdims=True))
        product = e(op.matmul(w, a))
        return [e(op.max(e(op.add(x, product)), [1])), a]

    _, ctx = check(build, (24, 24), (24, 24), left=3)
    assert any("what runs between them" in reason for *_, reason in ctx.log.declined)


def test_one_kernel_in_between_is_no_hindrance() -> None:
    """`negative` runs after the joint kernel, though it stood before the second reader of x."""

    def build(e: Emit, x: relax.Var, w: relax.Var) -> object:
        a = e(op.sum(x, [1], keepdims=True))
        product = e(op.matmul(w, a))
        return [product, e(op.max(x, [1]))]

    check(build, (24, 24), (24, 24), left=2)


DECLINES: dict[str, tuple[Build, list[tuple[int, ...]], int, str]] = {
    "a transpose": (
        lambda e, x: [e(op.exp(e(op.permute_dims(a := e(op.tanh(x)))))), a],
        [(24, 24)],
        2,
        "other rows",
    ),
    "rows and columns": (lambda e, x: [e(op.sum(x, [0])), e(op.sum(x, [1]))], [(24, 24)], 2, ""),
    "one row": (
        lambda e, x: [e(op.exp(x)), e(op.sum(x, [1]))],
        [(1, 200)],
        2,
        "cores busy",
    ),
    "a product": (lambda e, x, w: [e(op.matmul(x, w)), e(op.exp(x))], [(8, 8), (8, 8)], 2, ""),
    "a small operand in common": (
        lambda e, x, y, b: [e(op.add(x, b)), e(op.multiply(y, b))],
        [(6, 8), (6, 8), (8,)],
        2,
        "",
    ),
    "a slice each": (
        lambda e, x: [e(op.strided_slice(x, [1], [i], [i + 4])) for i in (0, 4)],
        [(6, 8)],
        2,
        "",
    ),
}


@pytest.mark.parametrize("name", DECLINES)
def test_what_stays_apart(name: str) -> None:
    build, shapes, left, reason = DECLINES[name]
    _, ctx = check(build, *shapes, left=left)
    said = [why for who, _, why in ctx.log.declined if who == "fuse_siblings"]
    assert any(reason in why for why in said) if reason else not said


def test_the_budget_of_blocks() -> None:
    off = fuse_siblings.with_options(max_blocks=1)
    _, ctx = check(lambda e, x: [e(op.exp(x)), e(op.abs(x))], (6, 40), left=2, chosen=off)
    assert any("more than 1 compute blocks" in why for *_, why in ctx.log.declined)


def test_the_least_saving_is_an_option() -> None:
    def build(e: Emit, x: relax.Var) -> object:
        return [e(op.exp(x)), e(op.abs(x))]

    check(build, (6, 40), left=2, chosen=fuse_siblings.with_options(least_bytes=961))
    check(build, (6, 40), left=1, chosen=fuse_siblings.with_options(least_bytes=960))


def test_a_row_that_leaves_the_cache_gains_nothing() -> None:
    n = 1 << 22

    def build(e: Emit, x: relax.Var) -> object:
        mean = e(op.mean(x, [1], keepdims=True))
        return [mean, e(op.sum(e(op.subtract(x, mean)), [1]))]

    before = fused(build, (8, n))
    ctx = llvm_context()
    assert fuse_siblings(before, ctx)[1] is False
    assert any("leave the cache" in why for *_, why in ctx.log.declined)
    # Reductions that read nothing but the row need it once, however long it is.
    once = fused(lambda e, x: [e(op.sum(x, [1])), e(op.max(x, [1]))], (8, n))
    assert fuse_siblings(once, llvm_context())[1] is True


def test_a_group_that_would_raise_the_peak_is_taken_back() -> None:
    """Two large results of a small operand, each reduced before the other would be made."""

    def build(e: Emit, x: relax.Var) -> object:
        results = []
        for power in (op.exp, op.negative):
            a = e(op.matmul(x, e(power(x))))
            large = e(op.concat([a] * 40, 0))
            results.append(e(op.sum(e(op.cumsum(large, 0)), [0])))
        return results

    before = fused(build, (64, 64))
    ctx = llvm_context()
    after, _ = fuse_siblings(before, ctx)
    peaks = []
    for mod in (before, after):
        notes = llvm_context()
        with notes.target:
            plan_memory(schedule_kernels(mod, notes)[0], notes)
        peaks.append(notes.log.metrics["arena_bytes"])
    assert peaks[1] <= peaks[0]


def test_equal_joint_kernels_are_one_function() -> None:
    def build(e: Emit, x: relax.Var, y: relax.Var) -> object:
        return [*mean_and_variance(e, x), *mean_and_variance(e, y)]

    after, _ = check(build, (24, 40), (24, 40), left=2)
    assert len({*kernels(after)}) == 1


def overwritable(build: Build, *shapes: Shape) -> list[tuple[int, int]]:
    """Return the pairs (operand, result) of the one kernel that a graph becomes."""
    mod, _ = fuse_siblings(fused(build, *shapes), llvm_context())
    (kernel,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    return overwritable_operands(kernel)


def test_the_last_reader_of_an_operand_may_overwrite_it() -> None:
    """Of two maps only the later one; not where a reduction reads the operand too."""
    maps = overwritable(lambda e, x: [e(op.exp(x)), e(op.abs(x))], (6, 40))
    assert maps == [(0, 2)]
    assert not overwritable(lambda e, x: [e(op.exp(x)), e(op.max(x, [1]))], (24, 40))

    def summed(e: Emit, x: relax.Var, y: relax.Var) -> object:
        a = e(op.add(x, y))
        return [a, e(op.max(a, [1]))]

    assert overwritable(summed, (24, 40), (24, 40)) == [(0, 2), (1, 2)]
