"""The planned module: numbers, no overlap, reuse, traps of aliasing (P1, P2, P3, P6, P7)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import relax as R

from relax_passes.build import build_executable
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.memory.verify_plan import verify_plan
from relax_passes.pass_base import PassContext
from relax_passes.schedule_kernels import schedule_kernels
from relax_passes.verify import verify_phase
from tests.relax_passes.lowered_modules import (
    call,
    flat,
    llvm_context,
    lowered,
    random_inputs,
    reference,
    structure,
)

op = relax.op
HALF = relax.const(np.float32(0.5))


def planned(mod: tvm.IRModule) -> tuple[tvm.IRModule, PassContext]:
    """Schedule and plan a lowered module; check what holds for every planned one."""
    ctx = llvm_context()
    with ctx.target:
        mod, _ = schedule_kernels(mod, ctx)
        mod, modified = plan_memory(mod, ctx)
        assert modified
        verify_phase("memory", mod, ctx)
        verify_plan(mod["main"])
        again, more = plan_memory(mod, ctx)
    assert not more
    tvm.ir.assert_structural_equal(again, mod)
    metrics = ctx.log.metrics
    assert metrics["lower_bound_bytes"] <= metrics["arena_bytes"]
    return mod, ctx


def check(mod: tvm.IRModule, *shapes: tuple[int, ...]) -> tuple[tvm.IRModule, PassContext]:
    """Plan `mod`, run it twice, and compare with TVM's own pipeline."""
    after, ctx = planned(mod)
    inputs = random_inputs(*shapes)
    want = reference(mod, *inputs)
    executable = build_executable(after, ctx)
    vm = relax.VirtualMachine(executable, tvm.cpu())
    tensors = [tvm.runtime.tensor(x) for x in inputs]
    first = vm["main"](*tensors)
    second = vm["main"](*[tvm.runtime.tensor(x * 0 + 3) for x in inputs])
    del second
    for want_one, got in zip(want, flat(first), strict=True):
        np.testing.assert_allclose(got, want_one, rtol=1e-5, atol=1e-5)
    for given, tensor in zip(inputs, tensors, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), given)
    return after, ctx


def opaque(emit: Callable[..., relax.Var], x: relax.Expr) -> relax.Var:
    """Emit a call whose kernel reads its operand elsewhere, so that it never runs in place."""
    return emit(op.permute_dims(x))


def test_chain_reuses_two_buffers():
    def build(e, x):
        for _ in range(6):
            x = opaque(e, x)
        return e(op.nn.relu(x))

    after, ctx = check(lowered(build, (16, 16)), (16, 16))
    assert ctx.log.metrics["arena_bytes"] == ctx.log.metrics["lower_bound_bytes"] == 2 * 1024
    assert ctx.log.metrics["naive_bytes"] == 6 * 1024
    assert structure(after).count("relax.memory.alloc_storage") == 1


def test_elementwise_chain_runs_in_place():
    """E3: each result overwrites the operand that dies, so one buffer is enough."""

    def build(e, x):
        for _ in range(4):
            x = e(op.tanh(e(op.add(x, HALF))))
        return opaque(e, x)

    _, ctx = check(lowered(build, (16, 16)), (16, 16))
    assert ctx.log.metrics["arena_bytes"] == 1024


def test_softmax_and_norms_run_in_place():
    """E3: a row is reduced before it is written."""
    gamma, beta = (relax.const(np.full(16, v, "float32")) for v in (1.5, 0.5))

    def build(e, x):
        x = e(op.nn.softmax(opaque(e, x)))
        x = e(op.nn.layer_norm(e(op.nn.softmax(x)), gamma, beta, axes=[-1]))
        return opaque(e, e(op.nn.rms_norm(x, gamma, axes=[-1])))

    _, ctx = check(lowered(build, (16, 16)), (16, 16))
    assert ctx.log.metrics["arena_bytes"] == 1024


def test_operand_that_is_read_again_is_not_overwritten():
    def build(e, x):
        a = e(op.exp(x))
        b = e(op.tanh(a))
        return e(op.add(opaque(e, b), opaque(e, a)))

    check(lowered(build, (16, 16)), (16, 16))


def test_operand_passed_twice_is_still_right():
    def build(e, x):
        a = e(op.exp(x))
        return opaque(e, e(op.multiply(a, e(op.reshape(a, (16, 16))))))

    check(lowered(build, (16, 16)), (16, 16))


def test_inputs_are_never_overwritten():
    check(lowered(lambda e, x: opaque(e, e(op.tanh(x))), (16, 16)), (16, 16))


def test_alias_keeps_its_storage_alive():
    """P1: left = match_cast(x + .25); right = x + .125; left + right is not right + right."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            left = builder.emit(op.add(x, relax.const(np.float32(0.25))))
            left = builder.match_cast(left, R.Tensor((8, 8), "float32"))
            right = builder.emit(op.add(x, relax.const(np.float32(0.125))))
            total = builder.emit(op.add(left, right))
            out = builder.emit_output(op.permute_dims(total))
        builder.emit_func_output(out)
    check(relax.transform.LegalizeOps()(builder.get()), (8, 8))


@pytest.mark.parametrize("flag", [False, True])
def test_branches_with_views(flag: bool):
    """P2: both branches of an If reshape their operand."""
    builder = relax.BlockBuilder()
    shape = (4, 8)
    cond = relax.Var("cond", R.Tensor((), "bool"))
    x = relax.Var("x", R.Tensor(shape, "float32"))

    def branch(function: Callable[[relax.Expr], relax.Expr], seed: relax.Var) -> relax.SeqExpr:
        bb = relax.BlockBuilder()
        with bb.function("branch", [seed]):
            a = bb.emit(op.reshape(seed, (32,)))
            a = bb.emit(function(a))
            bb.emit_func_output(bb.emit(op.reshape(a, shape)))
        return bb.get()["branch"].body

    with builder.function("main", [cond, x]):
        y = builder.emit(op.exp(x))
        chosen = builder.emit(relax.If(cond, branch(op.nn.relu, y), branch(op.negative, y)))
        builder.emit_func_output(builder.emit(op.add(chosen, y)))
    keep = {"relax.reshape": lambda _, view: view}
    mod = relax.transform.LegalizeOps(keep)(builder.get())
    after, ctx = planned(mod)
    (value,) = random_inputs(shape)
    (got,) = call(build_executable(after, ctx), np.array(flag), value)
    y_value = np.exp(value)
    want = y_value + (np.maximum(y_value, 0) if flag else -y_value)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_two_views_of_one_tensor():
    """P3: a = expand_dims(x); b = expand_dims(x); concat(a * b, b): b is untouched."""

    def build(e, x):
        y = e(op.exp(x))
        a, b = e(op.expand_dims(y, 0)), e(op.expand_dims(y, 0))
        return e(op.concat([e(op.multiply(a, b)), b], 0))

    check(lowered(build, (4, 8)), (4, 8))


def test_view_of_an_arena_tensor_at_an_offset():
    def build(e, x):
        a = e(op.permute_dims(x))
        b = e(op.exp(x))
        view = e(op.reshape(b, (8, 4)))
        return e(op.add(e(op.permute_dims(e(op.permute_dims(view)))), a))

    check(lowered(build, (4, 8)), (4, 8))


def test_output_that_is_the_input_is_a_copy():
    """P6: a function whose output is its input."""
    after, ctx = planned(lowered(lambda e, x: x, (4, 8)))
    vm = relax.VirtualMachine(build_executable(after, ctx), tvm.cpu())
    (value,) = random_inputs((4, 8))
    tensor = tvm.runtime.tensor(value)
    result = vm["main"](tensor)
    tensor.copyfrom(value * 0)
    np.testing.assert_array_equal(result.numpy(), value)


def test_outputs_share_no_bytes():
    """P6: one tensor returned twice, once through a view, next to a constant."""

    def build(e, x):
        y = e(op.exp(x))
        return [y, y, e(op.reshape(y, (32,))), relax.const(np.ones(3, "float32"))]

    mod = lowered(build, (4, 8))
    after, ctx = check(mod, (4, 8))
    vm = relax.VirtualMachine(build_executable(after, ctx), tvm.cpu())
    outputs = list(vm["main"](tvm.runtime.tensor(random_inputs((4, 8))[0])))
    expected = [o.numpy().copy() for o in outputs]
    outputs[0].copyfrom(expected[0] * 0)
    for output, want in zip(outputs[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(output.numpy(), want)


def test_results_of_two_calls_are_independent():
    mod = lowered(lambda e, x: e(op.exp(opaque(e, x))), (4, 8))
    after, ctx = planned(mod)
    vm = relax.VirtualMachine(build_executable(after, ctx), tvm.cpu())
    a, b = random_inputs((4, 8), (4, 8))
    first = vm["main"](tvm.runtime.tensor(a))
    vm["main"](tvm.runtime.tensor(b))
    np.testing.assert_allclose(first.numpy(), np.exp(a.T), rtol=1e-5)


def test_nested_tuples_and_unused_outputs():
    """P6: nested tuples, an element of a call's tuple result, a result nobody reads."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(op.split(x, 2, axis=1))
            second = builder.emit(relax.TupleGetItem(parts, 1))
            builder.emit(op.exp(second))
            inner = builder.emit(relax.Tuple([second, builder.emit(op.tanh(second))]))
            back = builder.emit(relax.TupleGetItem(inner, 1))
            out = builder.emit_output(relax.Tuple([relax.Tuple([back]), inner]))
        builder.emit_func_output(out)
    check(relax.transform.LegalizeOps()(builder.get()), (4, 8))


def test_symbolic_sizes_come_from_the_pool():
    """P7: a dimension known only at run time is never planned as static; others still are."""
    n = tirx.Var("n", "int64")

    def build(e, x, y):
        a = e(op.permute_dims(e(op.permute_dims(e(op.exp(x))))))
        b = e(op.permute_dims(e(op.permute_dims(y))))
        return [a, e(op.exp(b))]

    mod = lowered(build, (n, 8), (8, 8))
    after, _ = check(mod, (5, 8), (8, 8))
    for block in after["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if structure(after) and getattr(getattr(value, "op", None), "name", "") == (
                "relax.memory.alloc_tensor"
            ):
                assert all(isinstance(d, tirx.IntImm) for d in value.args[2].values)
    names = structure(after)
    assert names.count("relax.memory.alloc_tensor") == 2
    assert names.count("relax.builtin.alloc_tensor") >= 4


def test_function_without_intermediates_has_no_arena():
    after, ctx = check(lowered(lambda e, x: e(op.exp(x)), (4, 8)), (4, 8))
    assert "relax.memory.alloc_storage" not in structure(after)
    assert ctx.log.metrics["arena_bytes"] == 0


def test_residual_graph_numbers():
    def build(e, x):
        for _ in range(4):
            skip = x
            x = e(op.add(e(op.permute_dims(e(op.tanh(x)))), skip))
        return x

    check(lowered(build, (16, 16)), (16, 16))


def test_intermediates_without_elements_need_no_arena():
    def build(e, x):
        return e(op.permute_dims(e(op.nn.softmax(x))))

    _, ctx = check(lowered(build, (4, 0)), (4, 0))
    assert ctx.log.metrics["arena_bytes"] == 0
