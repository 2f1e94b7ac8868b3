"""float16 and bfloat16 computed in float32 on processors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.pass_base import PassContext
from relax_passes.widen_half_precision import widen_half_precision
from tests.relax_passes.pass_checks import check, context, module, operators
from tir_schedules.machine import Machine

R = relax.op
RNG = np.random.default_rng(3)


def constant(*shape: int, dtype: str = "float16") -> relax.Expr:
    values = RNG.standard_normal(shape).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    return relax.const(tvm.runtime.tensor(values))


def kinds(mod: tvm.IRModule, name: str) -> set[str]:
    """Return the result dtypes of the calls of one operator."""
    found = set()
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, tvm.ir.Call) and getattr(call.op, "name", "") == f"relax.{name}":
                found.add(str(binding.var.ty.dtype.dtype))
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_chain_converts_at_its_ends_only(dtype: str) -> None:
    weight = constant(8, 6, dtype=dtype)

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.matmul(x, weight))
        return bb.emit(R.nn.relu(bb.emit(R.add(y, y))))

    changed = check(widen_half_precision, module((4, 8), build, dtype))
    assert operators(changed) == {"astype": 2, "matmul": 1, "add": 1, "nn.relu": 1}
    assert kinds(changed, "matmul") == kinds(changed, "nn.relu") == {"float32"}
    assert str(changed["main"].ret_ty.dtype.dtype) == dtype


def test_numbers_are_those_of_float32_rounded_once() -> None:
    weight = constant(3000, 5)
    mod = module((2, 3000), lambda bb, x: bb.emit(R.matmul(x, weight)), "float16")
    x = RNG.standard_normal((2, 3000)).astype("float16")
    exact = x.astype("float64") @ weight.value.numpy().astype("float64")
    check(widen_half_precision, mod, x, reference=exact.astype("float16").astype("float64"))


def test_a_transpose_between_operators_does_not_round() -> None:
    """0.1 + 1024 rounds to 1024 in half: a transpose before the difference must not."""
    one, far = relax.const(np.float16(0.1)), relax.const(np.float16(1024))

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(bb.emit(R.multiply(x, one)), far))
        moved = bb.emit(R.reshape(bb.emit(R.permute_dims(y, [1, 0])), (2, 16)))
        return bb.emit(R.subtract(moved, far))

    x = np.ones((4, 8), "float16")
    changed = check(
        widen_half_precision,
        module((4, 8), build, "float16"),
        x,
        reference=np.full((2, 16), np.float16(0.1), "float64"),
    )
    assert operators(changed)["astype"] == 2
    assert kinds(changed, "permute_dims") == {"float32"}


def test_moving_operators_stay_in_half() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [1, 0]))
        return bb.emit(R.concat([y, y], axis=0))

    check(widen_half_precision, module((4, 8), build, "float16"), fires=False)


def test_a_cast_that_the_model_asks_for_still_rounds() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.exp(x))
        return bb.emit(R.astype(y, "float32"))

    x = RNG.standard_normal((40,)).astype("float16")
    expected = np.exp(x.astype("float32")).astype("float16").astype("float32")
    check(widen_half_precision, module((40,), build, "float16"), x, reference=expected)


def test_a_rounding_that_belongs_to_an_operator_is_left_out() -> None:
    """A frontend sums a product of halves in float32 and rounds it; a selection follows."""
    weight, far = constant(300, 6), relax.const(np.float16(0))

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        summed = bb.emit(R.matmul(x, weight, out_dtype="float32"))
        rounded = bb.emit(R.astype(summed, "float16"))
        kept = bb.emit(R.where(bb.emit(R.greater(x, far)), x, x))  # nothing to hand on: half
        chosen = bb.emit(R.where(relax.const(np.array([[True]])), rounded, far))
        both = bb.emit(R.multiply(chosen, relax.const(np.float16(1024))))
        return bb.emit(R.add(both, bb.emit(R.strided_slice(kept, [1], [0], [6]))))

    x = np.abs(RNG.standard_normal((2, 300))).astype("float16")
    wide = x.astype("float64")
    exact = wide @ weight.value.numpy().astype("float64") * 1024 + wide[:, :6]
    changed = check(
        widen_half_precision,
        module((2, 300), build, "float16"),
        x,
        reference=exact.astype("float16").astype("float64"),
    )
    assert kinds(changed, "where") == {"float16", "float32"}


def test_a_cast_of_values_that_were_never_half_still_rounds() -> None:
    """0.1 + 1024 rounds to 1024 in half: the model asked for it."""
    far = relax.const(np.float32(1024))

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        rounded = bb.emit(R.astype(bb.emit(R.add(x, far)), "float16"))
        return bb.emit(R.subtract(rounded, relax.const(np.float16(1024))))

    x = np.full((4, 8), 0.1, "float32")
    changed = check(widen_half_precision, module((4, 8), build), x, reference=np.zeros((4, 8)))
    assert kinds(changed, "subtract") == {"float32"}


def test_operators_of_several_results() -> None:
    parameters = [constant(4) for _ in range(3)] + [relax.const(np.ones(4, "float16"))]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        out = bb.emit(R.nn.batch_norm(x, *parameters, axis=1, training=False))
        return bb.emit(relax.TupleGetItem(out, 0))

    changed = check(widen_half_precision, module((2, 4, 3, 3), build, "float16"))
    assert str(changed["main"].ret_ty.dtype.dtype) == "float16"


def test_float32_is_left_alone() -> None:
    check(widen_half_precision, module((4,), lambda bb, x: bb.emit(R.exp(x))), fires=False)


def test_a_result_type_written_in_the_operator_is_declined() -> None:
    weight = constant(8, 6)

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return bb.emit(R.matmul(x, weight, out_dtype="float16"))

    ctx = context()
    check(widen_half_precision, module((4, 8), build, "float16"), fires=False, ctx=ctx)
    assert any("written in the operator" in reason for _, _, reason in ctx.log.declined)


def test_a_gpu_computes_in_half() -> None:
    target: Any = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    ctx = PassContext(target, Machine.from_target(target))
    mod = module((4,), lambda bb, x: bb.emit(R.exp(x)), "float16")
    check(widen_half_precision, mod, fires=False, ctx=ctx)
