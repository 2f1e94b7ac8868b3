"""What depends on parameters alone becomes a function of its own; the rest takes its results."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.analysis.fixed_values import PREPARE, TAKES
from relax_passes.lift_preparation import lift_preparation
from relax_passes.lower_operators import lower_operators
from tests.plain_build import build_plainly
from tests.relax_passes.fixed_parameters import fixed_module
from tests.relax_passes.pass_checks import check, context, module, normal

R = relax.op
W, V = normal(6, 5), normal(5)


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    return lower_operators(mod, context())[0]


def linear(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var, v: relax.Var) -> relax.Expr:
    """x W' + v, the weight as torch holds it."""
    return bb.emit(R.add(bb.emit(R.matmul(x, bb.emit(R.permute_dims(w)))), v))


def results(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    """Run a split module as a caller does who keeps nothing."""
    machine = relax.VirtualMachine(build_plainly(mod), tvm.cpu())
    given = [tvm.runtime.tensor(i) for i in inputs]
    takes = {name: [int(n) for n in mod[name].attrs[TAKES]] for name in (PREPARE, "main")}
    prepared = machine[PREPARE](*(given[n] for n in takes[PREPARE]))
    prepared = [prepared] if hasattr(prepared, "shape") else list(prepared)
    return machine["main"](*(given[n] for n in takes["main"]), *prepared).numpy()


def calls(mod: tvm.IRModule, name: str) -> list[str]:
    """Return the kernels that a function calls, and "reshape"."""
    values = [b.value for block in mod[name].body.blocks for b in block.bindings]
    found = [v for v in values if isinstance(v, tvm.ir.Call)]
    return [getattr(v.args[0], "name_hint", v.op.name.removeprefix("relax.")) for v in found]


def test_a_weight_is_packed_apart_from_the_call() -> None:
    mod = lowered(fixed_module((3, 6), {"w": (5, 6), "v": (5,)}, linear))
    split = check(lift_preparation, mod)
    assert calls(split, PREPARE) == ["pack_weight"] and "pack_weight" not in calls(split, "main")
    assert list(split[PREPARE].attrs[TAKES]) == [1]
    assert list(split["main"].attrs[TAKES]) == [0, 2]  # the bias is read as it is
    x = normal(3, 6)
    np.testing.assert_allclose(results(split, x, W.T.copy(), V), x @ W + V, rtol=1e-5, atol=1e-5)


def test_a_parameter_may_go_to_both() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var, v: relax.Var) -> relax.Expr:
        row = bb.emit(R.reshape(v, [1, 5]))  # a view, which costs nothing: both take it
        return bb.emit(R.multiply(bb.emit(R.add(x, row)), bb.emit(R.exp(row))))

    split = check(lift_preparation, lowered(fixed_module((3, 5), {"v": (5,)}, build)))
    assert calls(split, "main") == ["reshape", "add", "multiply"]
    assert calls(split, PREPARE) == ["reshape", "tir_exp"]
    assert list(split["main"].attrs[TAKES]) == [0, 1]
    x = normal(3, 5)
    np.testing.assert_allclose(results(split, x, V), (x + V) * np.exp(V), rtol=1e-5)


@pytest.mark.parametrize("size", [3, "n"])
def test_what_is_much_larger_than_its_parameters_stays(size: object) -> None:
    rows = 40_000 if size == 3 else tvm.tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var, v: relax.Var) -> relax.Expr:
        return bb.emit(R.add(x, bb.emit(R.broadcast_to(bb.emit(R.exp(v)), [rows, 20]))))

    split = check(lift_preparation, lowered(fixed_module((rows, 20), {"v": (20,)}, build)))
    assert len(calls(split, PREPARE)) == 1 and "broadcast_to" in calls(split, "main")


def test_nothing_to_lift_is_declined() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var, v: relax.Var) -> relax.Expr:
        return bb.emit(R.add(x, v))

    ctx = context()
    check(lift_preparation, lowered(fixed_module((3, 5), {"v": (5,)}, build)), fires=False, ctx=ctx)
    assert "from parameters alone" in ctx.log.declined[0][2]


def test_without_fixed_inputs_nothing_changes() -> None:
    mod = module((3, 6), lambda bb, x: bb.emit(R.exp(x)))
    check(lift_preparation, lowered(mod), fires=False)
