"""Fusion by category: what joins, what must stay apart, and in what order."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import relax as R

from relax_passes.fuse_operators import fuse_operators
from tests.relax_passes.lowered_modules import (
    llvm_context,
    lowered,
    random_inputs,
    reference,
    structure,
)

op = relax.op


def fused(mod: tvm.IRModule) -> tvm.IRModule:
    """Fuse, check what holds for every fused module, and return it."""
    ctx = llvm_context()
    result, modified = fuse_operators(mod, ctx)
    relax.analysis.well_formed(result)
    calls = [name for name in structure(result) if not name.startswith("relax.")]
    assert ctx.log.metrics["kernel_count"] == len(calls)
    again, more = fuse_operators(result, llvm_context())
    assert not more
    assert structure(again) == structure(result)
    assert modified == (len(structure(mod)) != len(structure(result)))
    return result


def same_numbers(before: tvm.IRModule, after: tvm.IRModule, *shapes: tuple[int, ...]) -> None:
    inputs = random_inputs(*shapes)
    for want, got in zip(reference(before, *inputs), reference(after, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_chain_becomes_one_kernel():
    mod = lowered(lambda e, x: e(op.tanh(e(op.exp(e(op.nn.relu(x)))))), (4, 8))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (4, 8))


def test_diamond_becomes_one_kernel():
    def build(e, x):
        a = e(op.exp(x))
        return e(op.add(e(op.tanh(a)), e(op.nn.relu(a))))

    mod = lowered(build, (4, 8))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (4, 8))


def test_what_a_reduction_and_its_reader_share_joins_them():
    """tanh(x) may join mean and subtraction once these have joined each other."""

    def build(e, x):
        a = e(op.tanh(x))
        return e(op.subtract(a, e(op.mean(a, [2], keepdims=True))))

    mod = lowered(build, (3, 4, 1))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (3, 4, 1))


def test_convolution_takes_bias_residual_and_activation():
    def build(e, x, w):
        y = e(op.nn.conv2d(x, w, padding=1))
        y = e(op.add(y, relax.const(np.full((1, 8, 1, 1), 0.5, "float32"))))
        return e(op.nn.relu(e(op.add(y, x))))

    mod = lowered(build, (1, 8, 6, 6), (8, 8, 3, 3))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (1, 8, 6, 6), (8, 8, 3, 3))


def test_two_anchors_stay_apart():
    def build(e, x, w, v):
        return e(op.nn.relu(e(op.matmul(e(op.nn.relu(e(op.matmul(x, w)))), v))))

    mod = lowered(build, (4, 8), (8, 8), (8, 8))
    result = fused(mod)
    assert len(structure(result)) == 2
    same_numbers(mod, result, (4, 8), (8, 8), (8, 8))


def test_nothing_fuses_into_a_matmul_input():
    mod = lowered(lambda e, x, w: e(op.matmul(e(op.exp(x)), w)), (4, 8), (8, 8))
    assert len(structure(fused(mod))) == 2


def test_softmax_keeps_its_scale_in_front():
    def build(e, x):
        return e(op.nn.softmax(e(op.multiply(x, relax.const(np.float32(0.125))))))

    mod = lowered(build, (4, 8))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (4, 8))


def test_scatter_is_left_alone():
    def build(e, x):
        idx = relax.const(np.zeros((4, 8), "int64"))
        y = e(op.exp(x))
        return e(op.nn.relu(e(op.scatter_elements(y, idx, y))))

    mod = lowered(build, (4, 8))
    result = fused(mod)
    assert len(structure(result)) == 3
    same_numbers(mod, result, (4, 8))


def test_result_read_outside_is_not_swallowed():
    def build(e, x):
        a = e(op.exp(x))
        return [a, e(op.nn.relu(a))]

    mod = lowered(build, (4, 8))
    result = fused(mod)
    same_numbers(mod, result, (4, 8))


def test_view_is_no_kernel_and_ends_a_region():
    """P8: adaptive_avg_pool -> no-op reshape -> softmax."""

    def build(e, x):
        y = e(op.nn.adaptive_avg_pool2d(x, (1, 1)))
        return e(op.nn.softmax(e(op.reshape(y, (1, 8)))))

    mod = lowered(build, (1, 8, 4, 4))
    names = structure(fused(mod))
    assert names.count("relax.reshape") == 1
    assert len(names) == 3


def test_chain_of_two_hundred_respects_the_budget():
    """P11, C6: a long chain is cut into several kernels, linear in its length."""

    def build(e, x):
        for i in range(200):
            x = e(op.add(x, relax.const(np.float32(i % 7))))
        return x

    mod = lowered(build, (4, 8))
    result = fused(mod)
    kernels = len(structure(result))
    assert 2 <= kernels <= 20
    (value,) = random_inputs((4, 8))
    (got,) = reference(result, value)
    np.testing.assert_allclose(got, value + sum(i % 7 for i in range(200)), rtol=1e-5)


def test_fifty_readers_of_one_tensor():
    """P11: a tensor read by 50 consumers compiles."""

    def build(e, x):
        a = e(op.exp(x))
        total = e(op.nn.relu(a))
        for i in range(50):
            total = e(op.add(total, e(op.multiply(a, relax.const(np.float32(i))))))
        return total

    mod = lowered(build, (4, 8))
    result = fused(mod)
    assert len(structure(result)) <= 20
    (value,) = random_inputs((4, 8))
    (got,) = reference(result, value)
    np.testing.assert_allclose(got, np.exp(value) * (1 + sum(range(50))), rtol=1e-5)


def test_match_cast_that_defines_a_symbol_stays_in_front():
    """P5: the call whose shape uses the symbol comes after its definition."""
    builder = relax.BlockBuilder()
    m = tirx.Var("m", "int64")
    x = relax.Var("x", R.Tensor(ndim=1, dtype="float32"))
    y = relax.Var("y", R.Tensor((4,), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            a = builder.emit(op.exp(y))
            cast = builder.match_cast(x, R.Tensor((m,), "float32"))
            b = builder.emit(op.full(relax.ShapeExpr([m]), relax.const(np.float32(2))))
            c = builder.emit(op.add(builder.emit(op.nn.relu(cast)), b))
            out = builder.emit_output(relax.Tuple([a, c]))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    result, _ = fuse_operators(mod, llvm_context())
    relax.analysis.well_formed(result)
    same_numbers(mod, result, (5,), (4,))


def test_one_function_called_at_two_symbolic_shapes():
    """A transpose and the transpose back are one PrimFunc, whose sizes mean two things."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = lowered(lambda e, x: e(op.permute_dims(e(op.permute_dims(x)))), (n, m))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (3, 5))


def test_sizes_stated_to_be_equal_keep_their_own_names():
    """x and y have sizes known to agree only by a match_cast, as on both sides of a skip."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((n, 4), "float32"))
    y = relax.Var("y", R.Tensor((m, 4), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            grown = builder.emit(op.exp(builder.emit(op.nn.relu(y))))
            cast = builder.match_cast(grown, R.Tensor((n, 4), "float32"))
            out = builder.emit_output(builder.emit(op.tanh(builder.emit(op.add(x, cast)))))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    result = fused(mod)
    assert [str(b.var.ty.shape[0]) for b in result["main"].body.blocks[0].bindings][-1] == "n"
    same_numbers(mod, result, (3, 4), (3, 4))


def test_symbolic_chain_becomes_one_kernel():
    n = tirx.Var("n", "int64")
    mod = lowered(lambda e, x: e(op.exp(e(op.nn.relu(x)))), (n, 8))
    result = fused(mod)
    assert len(structure(result)) == 1
    same_numbers(mod, result, (5, 8))


@pytest.mark.parametrize("nodes", [100, 400])
def test_residual_chain_is_fused_in_linear_work(nodes: int, monkeypatch: pytest.MonkeyPatch):
    """P11: the nodes looked at between a node and its post-dominator grow with the nodes."""
    from relax_passes.fusion_groups import Grouping

    looked_at = [0]
    between = Grouping._nodes_between

    def counting(self, node, target):
        found = between(self, node, target)
        looked_at[0] += len(found)
        return found

    monkeypatch.setattr(Grouping, "_nodes_between", counting)

    def build(e, x):
        for _ in range(nodes // 2):
            x = e(op.add(x, e(op.tanh(x))))
        return x

    fuse_operators(lowered(build, (4,)), llvm_context())
    assert looked_at[0] <= 4 * nodes
