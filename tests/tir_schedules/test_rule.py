"""The rule engine asks only the rules that a function's blocks allow."""

from __future__ import annotations

import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule, apply_rules

MACHINE = Machine.from_target(tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}))


def taken(func: tirx.PrimFunc, machine: Machine) -> s_tir.Schedule:
    return s_tir.Schedule(func)


def never(func: tirx.PrimFunc, machine: Machine) -> s_tir.Schedule:
    raise AssertionError("it was asked")


def doubled(tag: str = "") -> tirx.PrimFunc:
    """Return y = 2 x in one block."""
    attrs = {"schedule_rule": tag} if tag else {}
    x = te.placeholder((4,), name="x")
    return te.create_prim_func([x, te.compute((4,), lambda i: x[i] * 2, name="y", attrs=attrs)])


@T.prim_func(s_tir=True)
def scan(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[i] + x[0]


def test_a_rule_of_a_tag_is_asked_where_one_block_has_it() -> None:
    rules = [Rule("tiles", never, "other"), Rule("mine", taken, "mine"), Rule("last", taken)]
    result = apply_rules(doubled("mine"), MACHINE, rules)
    assert result.rule == "mine"
    assert result.declined == (("tiles", "has 0 blocks tagged other"),)
    assert apply_rules(doubled(), MACHINE, rules).rule == "last"


@T.prim_func(s_tir=True)
def named_scan(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    with T.sblock("named_scan"):
        T.reads()
        T.writes()
        for i in range(4):
            y[i] = x[i] + x[0]


@pytest.mark.parametrize("func", [scan, named_scan])
def test_loops_without_blocks_go_to_rules_that_take_loops(func: tirx.PrimFunc) -> None:
    """NonZero is one of these: rules of blocks used to fail at it, for want of a root."""
    rules = [Rule("map", never), Rule("last", taken, needs_blocks=False)]
    result = apply_rules(func, MACHINE, rules)
    assert result.rule == "last"
    assert result.declined[0][0] == "rules of blocks"
    assert "no compute blocks" in result.declined[0][1]


def test_a_rule_that_fails_is_declined() -> None:
    def refuse(func: tirx.PrimFunc, machine: Machine) -> s_tir.Schedule:
        raise Decline("too small")

    rules = [Rule("first", refuse), Rule("second", never), Rule("last", taken)]
    result = apply_rules(doubled(), MACHINE, rules)
    assert result.declined == (("first", "too small"), ("second", "failed: it was asked"))
    with pytest.raises(RuntimeError, match="too small"):
        apply_rules(doubled(), MACHINE, rules[:1])


def test_a_rule_that_writes_instructions_of_other_targets_is_not_asked() -> None:
    rules = [Rule("warps", never, kinds=("cuda",)), Rule("last", taken)]
    result = apply_rules(doubled(), MACHINE, rules)
    assert result.declined == (("warps", "writes instructions of cuda, this is llvm"),)
