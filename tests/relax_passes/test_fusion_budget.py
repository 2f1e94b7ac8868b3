"""C6: long chains, many readers and many operands neither explode in code nor spill registers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.duplicate_cheap_producers import duplicate_cheap_producers
from relax_passes.fuse_operators import fuse_operators
from relax_passes.schedule_kernels import schedule_kernel
from tests.relax_passes.lowered_modules import llvm_context, lowered, structure
from tests.tir_schedules.llvm.scheduled_kernel import AVX2, machine

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]
SHAPE = (64, 256)


def constant(value: int) -> relax.Expr:
    return relax.const(np.float32(value))


def chain_of_200(e: Emit, x: relax.Var) -> relax.Var:
    for i in range(100):
        x = e(op.nn.relu(e(op.add(x, constant(i % 7 - 3)))))
    return x


def fifty_readers(e: Emit, x: relax.Var) -> relax.Var:
    shared = e(op.exp(x))
    total = e(op.nn.relu(shared))
    for i in range(50):
        total = e(op.add(total, e(op.multiply(shared, constant(i)))))
    return total


def residual_chain_of_1000(e: Emit, x: relax.Var) -> relax.Var:
    for _ in range(500):
        x = e(op.add(x, e(op.nn.relu(x))))
    return x


def forty_operands(e: Emit, x: relax.Var, *others: relax.Var) -> relax.Var:
    for y in others:
        x = e(op.multiply(e(op.add(x, y)), y))
    return x


def fused(build: Callable[..., relax.Var], operands: int, max_blocks: int = 48) -> tvm.IRModule:
    """Return a module of `operands` equal tensors after the passes of the fuse phase."""
    ctx = llvm_context()
    mod, copied = duplicate_cheap_producers(lowered(build, *[SHAPE] * operands), ctx)
    assert not copied, "a block that is one region has nothing to copy"
    return fuse_operators.with_options(max_blocks=max_blocks)(mod, ctx)[0]


def machine_code(mod: tvm.IRModule) -> list[str]:
    """Return the machine code of each distinct kernel, as the schedule phase leaves it."""
    ctx = llvm_context()
    ctx.target, ctx.machine = AVX2, machine(AVX2)
    found = []
    for func in mod.functions.values():
        if isinstance(func, tirx.PrimFunc):
            kernel = schedule_kernel(func, ctx)[0].with_attr("global_symbol", "main")
            built = tvm.compile(tvm.IRModule({"main": kernel}), target=AVX2)
            found.append(str(built.mod.inspect_source("asm")))
    return found


@pytest.mark.parametrize(
    ("build", "operands", "calls"),
    [
        (chain_of_200, 1, 200),
        (fifty_readers, 1, 102),
        (residual_chain_of_1000, 1, 1000),
        (forty_operands, 40, 78),
    ],
)
def test_kernels_are_few_small_and_keep_their_values_in_registers(
    build: Callable[..., relax.Var], operands: int, calls: int
) -> None:
    mod = fused(build, operands)
    kernels = len(structure(mod))
    assert calls / 48 <= kernels <= calls / 20
    for code in machine_code(mod):
        assert len(code.splitlines()) < 300 * 48, "code grows with the blocks of a kernel"
        for block in re.split(r"^\.LBB\w+:.*$", code, flags=re.M):
            arithmetic = re.findall(r"\sv(?:add|mul|max|fmadd\w+)ps\s", block)
            stores = re.findall(r"vmov\w+\s+%ymm\d+, .*\(%rsp\)", block)
            assert not arithmetic or not stores


def test_without_the_budget_all_is_one_kernel() -> None:
    """So it is the budget that cuts the chain."""
    assert len(structure(fused(residual_chain_of_1000, 1, max_blocks=1000))) == 1
