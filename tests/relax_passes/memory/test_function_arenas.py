"""Arenas of functions that call each other: branches share, callers add up."""

from __future__ import annotations

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R

import relaxc
from relax_passes.memory.function_arenas import ArenaStack, FunctionArena, Totals, calls_of
from relax_passes.memory.live_ranges import bindings_of


def arena(peak: int, *calls: tuple[int, set[str]], alive=((0, 9, 64),)) -> FunctionArena:
    bound = max((size for *_, size in alive), default=0)
    return FunctionArena(peak, bound, 2 * peak, alive, [(k, frozenset(n)) for k, n in calls])


def test_branches_take_as_much_as_the_larger_one() -> None:
    stack = ArenaStack(
        {
            "main": arena(128, (3, {"then", "other"}), alive=((0, 3, 128), (2, 5, 64))),
            "then": arena(256, alive=((0, 1, 256),)),
            "other": arena(512, alive=((0, 1, 512),)),
        }
    )
    # Both ask for the same bytes, so that the pool hands out one block; at step 3 one of main's
    # buffers is alive.
    assert stack.bytes == {"main": 128, "then": 512, "other": 512}
    assert stack.totals() == Totals(peak=128 + 512, bound=64 + 512, naive=2 * (128 + 512))


def test_calls_of_calls_add_up_and_those_in_turn_do_not() -> None:
    stack = ArenaStack(
        {
            "main": arena(0, (0, {"first"}), (1, {"second"}), alive=()),
            "first": arena(64, (0, {"inner"})),
            "second": arena(192, alive=((0, 9, 192),)),
            "inner": arena(64),
            "unused": arena(1 << 20),
        }
    )
    assert stack.totals().peak == 192 + 64
    assert stack.totals().bound == 192
    assert stack.bytes["first"] == stack.bytes["second"] == 192
    assert stack.bytes["inner"] == 64 and stack.bytes["main"] == 0


def test_a_function_that_calls_itself_counts_once() -> None:
    loop = arena(64, (1, {"loop"}))
    stack = ArenaStack({"main": arena(64, (0, {"loop"})), "loop": loop})
    assert stack.totals() == Totals(peak=128, bound=128, naive=256)


@I.ir_module
class Branches:
    """Two branches of different sizes, under a condition."""

    @R.function(private=True)
    def narrow(x: R.Tensor((32, 32), "float32")) -> R.Tensor((32, 32), "float32"):
        with R.dataflow():
            a = R.matmul(x, x)
            gv = R.matmul(a, x)
            R.output(gv)
        return gv

    @R.function(private=True)
    def wide(x: R.Tensor((32, 32), "float32")) -> R.Tensor((32, 32), "float32"):
        with R.dataflow():
            a = R.matmul(R.concat([x, x], axis=0), x)
            gv = R.matmul(R.permute_dims(a), a)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((32, 32), "float32"), flag: R.Tensor((), "bool")) -> R.Tensor(
        (32, 32), "float32"
    ):
        cls = Branches
        if flag:
            y = cls.narrow(x)
        else:
            y = cls.wide(x)
        return y


def test_branches_of_a_model_ask_for_one_block() -> None:
    calls = calls_of(bindings_of(Branches["main"]), ["narrow", "wide", "main"])
    assert [names for _, names in calls] == [{"narrow", "wide"}]
    compiled = relaxc.compile(Branches, threads=1, progress=False)
    plan = compiled.report.metrics["memory_plan"]
    tops = {
        name: max(b["offset"] + b["size"] for b in plan if b["function"] == name)
        for name in ("narrow", "wide")
    }
    assert tops["narrow"] < tops["wide"] == compiled.report.arena_bytes
    assert compiled.report.lower_bound_bytes == compiled.report.arena_bytes
    x = np.random.default_rng(0).standard_normal((32, 32)).astype("float32")
    double = np.concatenate([x, x]) @ x
    np.testing.assert_allclose(compiled(x, np.array(True)), x @ x @ x, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        compiled(x, np.array(False)), double.T @ double, rtol=1e-3, atol=1e-3
    )
