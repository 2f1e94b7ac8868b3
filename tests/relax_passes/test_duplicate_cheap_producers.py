"""A cheap tensor of several kernels is computed in each, where that moves fewer bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from tvm import relax, tirx

from frontends.onnx import import_onnx
from relax_passes.duplicate_cheap_producers import duplicate_cheap_producers
from relax_passes.fuse_operators import fuse_operators
from relax_passes.pass_base import GraphPass
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.lowered_modules import (
    Shape,
    llvm_context,
    lowered,
    random_inputs,
    reference,
    structure,
)

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]


def kernels(
    build: Callable[..., object],
    *shapes: Shape,
    copies: int,
    reason: str = "",
    numbers: tuple[Shape, ...] = (),
    chosen: GraphPass = duplicate_cheap_producers,
) -> list[str]:
    """Run the pass with all checks; return the kernels after fusion.

    Args:
        copies: How many calls the pass must add.
        reason: Text that a decline must hold; "" where there must be none.
        numbers: Sizes to compare the numbers at, those of `shapes` by default.
    """
    mod = lowered(build, *shapes)
    ctx = llvm_context()
    changed, modified = chosen(mod, ctx)
    assert modified == (copies > 0)
    assert modified or changed.same_as(mod)
    assert len(structure(changed)) == len(structure(mod)) + copies
    assert [r for *_, r in ctx.log.declined if reason and reason in r] or not reason
    assert bool(ctx.log.declined) == bool(reason)
    relax.analysis.well_formed(changed)
    assert chosen(changed, llvm_context())[1] is False
    fused, _ = fuse_operators(changed, llvm_context())
    inputs = random_inputs(*(numbers or shapes))
    for want, got in zip(reference(mod, *inputs), reference(fused, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return structure(fused)


def two_sums(producer: Callable[..., relax.Expr]) -> Callable[..., object]:
    """Return a graph in which reductions along two axes read what `producer` makes."""

    def build(e: Emit, *inputs: relax.Var) -> object:
        a = e(producer(e, *inputs))
        return [e(op.sum(a, [0])), e(op.max(a, [1]))]

    return build


def test_relu_is_computed_in_both_reductions() -> None:
    found = kernels(two_sums(lambda e, x: op.nn.relu(x)), (16, 24), copies=1)
    assert len(found) == 2
    assert all("relu" in name for name in found)


def test_without_it_the_tensor_is_stored() -> None:
    off = duplicate_cheap_producers.with_options(operations_per_byte=0)
    build = two_sums(lambda e, x: op.nn.relu(x))
    assert len(kernels(build, (16, 24), copies=0, reason="operations more", chosen=off)) == 3


def test_a_sum_of_broadcast_operands_is_made_where_it_is_read() -> None:
    found = kernels(two_sums(lambda e, x, y: op.add(x, y)), (16, 1), (1, 24), copies=1)
    assert len(found) == 2


def test_a_chain_is_copied_as_a_whole() -> None:
    def producer(e: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
        return op.nn.relu(e(op.add(x, y)))

    assert len(kernels(two_sums(producer), (16, 1), (1, 24), copies=2)) == 2


def test_what_a_copy_reads_may_be_copied_in_its_turn() -> None:
    def build(e: Emit, x: relax.Var) -> object:
        a = e(op.nn.relu(x))
        b = e(op.negative(a))
        return [*(e(op.sum(b, [axis])) for axis in (0, 1)), e(op.max(a, [0]))]

    assert len(kernels(build, (16, 24), copies=3)) == 3


def test_symbolic_sizes() -> None:
    n = tirx.Var("n", "int64")
    build = two_sums(lambda e, x: op.nn.relu(x))
    assert len(kernels(build, (n, 24), copies=1, numbers=((5, 24),))) == 2


@pytest.mark.parametrize(
    ("producer", "shapes", "reason"),
    [
        (lambda e, x: op.erf(e(op.tanh(x))), [(16, 24)], "operations more for 3072 bytes less"),
        (
            lambda e, x, y, z, w: op.add(e(op.add(x, y)), e(op.add(z, w))),
            [(16, 24)] * 4,
            "larger than it is",
        ),
    ],
)
def test_what_costs_more_than_it_saves_is_stored(
    producer: Callable[..., relax.Expr], shapes: list[Shape], reason: str
) -> None:
    assert len(kernels(two_sums(producer), *shapes, copies=0, reason=reason)) == 3


def test_a_reader_that_takes_no_producer_gets_no_copy() -> None:
    """A product reads its operand many times: fusion leaves the operand in front of it."""

    def build(e: Emit, x: relax.Var, w: relax.Var) -> object:
        a = e(op.nn.relu(x))
        return [e(op.matmul(a, w)), e(op.sum(a, [0]))]

    found = kernels(build, (8, 8), (8, 8), copies=0, reason="cannot take it into its kernel")
    assert len(found) == 3


def test_a_view_keeps_what_it_looks_at() -> None:
    def build(e: Emit, x: relax.Var) -> object:
        a = e(op.nn.relu(x))
        return [e(op.sum(e(op.reshape(a, (24, 16))), [0])), e(op.max(a, [1]))]

    kernels(build, (16, 24), copies=0, reason="no kernel of one result")


def test_a_larger_reader_repeats_more_operations() -> None:
    """Each of 512 rows would compute the same 64 numbers again."""

    def build(e: Emit, x: relax.Var, y: relax.Var) -> object:
        a = e(op.nn.relu(x))
        return [e(op.max(e(op.add(y, a)), [0])), e(op.sum(a, [0]))]

    kernels(build, (1, 64), (512, 64), copies=0, reason="operations more")


def test_fifty_readers_do_not_get_fifty_copies() -> None:
    """C6: what 49 copies repeat is weighed against one store."""

    def build(e: Emit, x: relax.Var) -> object:
        a = e(op.nn.relu(x))
        return [
            e(op.sum(e(op.multiply(a, relax.const(np.float32(i)))), [i % 2])) for i in range(50)
        ]

    kernels(build, (16, 24), copies=0, reason="operations more")


def test_a_result_is_stored_whoever_reads_it() -> None:
    def build(e: Emit, x: relax.Var) -> object:
        a = e(op.nn.relu(x))
        return [a, e(op.sum(a, [0])), e(op.max(a, [1]))]

    mod = lowered(build, (16, 24))
    assert duplicate_cheap_producers(mod, llvm_context())[1] is False


_REFUSED_FIRST = """<ir_version: 9, opset_import: ["" : 20]>
graph (float16[1,3,5,5] x) => (float16[1,3,5,9] cut, float16 mean, float16[1,3,5,5] sum)
<int64[4] axes = {0,1,2,3}, int64[1] start = {0}, int64[1] end = {9}, int64[1] axis = {3},
 int64[1] step = {1}>
{
    sigmoid = Sigmoid(x)
    size = Abs(x)
    larger = Max(sigmoid, size)
    mean = ReduceMean<keepdims = 0>(sigmoid, axes)
    sum = Add(larger, larger)
    joined = Concat<axis = 3>(larger, larger)
    cut = Slice(joined, start, end, axis, step)
}"""


def test_what_was_refused_beside_others_is_looked_at_again() -> None:
    """Found by the graph fuzzer: the second run of the pass made a copy that the first refused."""
    ctx = llvm_context()
    mod = import_onnx(onnx.parser.parse_model(_REFUSED_FIRST)).module
    mod = default_pipeline().until("lower").run(mod, ctx)
    once, _ = duplicate_cheap_producers(mod, ctx)
    assert duplicate_cheap_producers(once, ctx)[1] is False
