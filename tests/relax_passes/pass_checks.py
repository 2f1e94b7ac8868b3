"""What every test of a graph pass asserts: structure, numbers, idempotence, well-formedness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from relax_passes.pass_base import GraphPass, PassContext
from tests.plain_build import build_plainly
from tir_schedules.machine import Machine

Build = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def context() -> PassContext:
    """Return a context for an AVX2 processor: a pass decides alike on whatever runs the tests."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
    return PassContext(target, Machine.from_target(target))


def module(shape: tuple[object, ...], build: Build, dtype: str = "float32") -> tvm.IRModule:
    """Return a module whose `main` takes one tensor `x` and returns `build(builder, x)`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def weights(*shape: int, seed: int = 0, positive: bool = False) -> relax.Expr:
    """Return a constant of random values, those above 0.5 only when `positive`."""
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return relax.const(np.abs(values) + np.float32(0.5) if positive else values)


def operators(mod: tvm.IRModule) -> Counter[str]:
    """Count the operators that `main` calls."""
    counts: Counter[str] = Counter()
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
                counts[str(value.op.name).removeprefix("relax.")] += 1
    return counts


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    """Build `mod` without our passes and return the result of `main`."""
    executable = build_plainly(mod, checked=False)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(i) for i in inputs)).numpy()


def check(
    graph_pass: GraphPass,
    mod: tvm.IRModule,
    *inputs: np.ndarray,
    fires: bool = True,
    ctx: PassContext | None = None,
    reference: np.ndarray | None = None,
    finish: GraphPass | None = None,
) -> tvm.IRModule:
    """Run a pass; check its numbers, that a second run changes nothing, and well-formedness.

    Args:
        fires: Whether the pass must change the module.
        reference: The right result, that of `mod` by default.
        finish: A pass to run before execution, where TVM cannot run the result as it is.
    """
    ctx = ctx or context()
    changed, modified = graph_pass(mod, ctx)
    assert modified == fires
    relax.analysis.well_formed(changed)
    assert graph_pass(changed, ctx)[1] is False
    if inputs:
        wanted = run(mod, *inputs) if reference is None else reference
        runnable = changed if finish is None else finish(changed, ctx)[0]
        # Sums in another order: errors are relative to the largest value, not to each.
        scale = float(np.max(np.abs(wanted), initial=1.0, where=np.isfinite(wanted)))
        np.testing.assert_allclose(run(runnable, *inputs), wanted, rtol=1e-5, atol=1e-5 * scale)
    return changed


def normal(*shape: int) -> np.ndarray:
    """Return a random float32 input."""
    return np.random.default_rng(7).standard_normal(shape).astype("float32")
