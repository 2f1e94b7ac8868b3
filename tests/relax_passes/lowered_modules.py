"""Small modules in the state a pass under test expects, and numpy in and out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps
from tvm.script import relax as R

from relax_passes.pass_base import PassContext
from tests.plain_build import build_plainly
from tir_schedules.machine import Machine

SCHEDULED = "tirx.is_scheduled"
Shape = Sequence[int | tirx.Var]


def llvm_context() -> PassContext:
    """Return a context for the simplest LLVM target."""
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    return PassContext(target, Machine.from_target(target))


def lowered(
    build: Callable[..., relax.Expr | list[relax.Expr]], *shapes: Shape, dtype: str = "float32"
) -> tvm.IRModule:
    """Return the module whose `main` computes `build(emit, *params)`, legalized; views stay."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = build(builder.emit, *params)
            if isinstance(result, list):
                result = relax.Tuple(result)
            out = builder.emit_output(result)
        builder.emit_func_output(out)
    keep_view = {
        "relax.reshape": lambda _, call: call,
        "relax.expand_dims": lambda bb, call: bb.normalize(
            relax.op.reshape(call.args[0], call.ty.shape)
        ),
    }
    return LegalizeOps(keep_view)(builder.get())


def marked_scheduled(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with every PrimFunc marked as scheduled, its default loops kept."""
    functions = {
        var: func.with_attr(SCHEDULED, 1) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions.items()
    }
    return tvm.IRModule(functions)


def reference(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run `mod` through TVM's own pipeline."""
    return call(build_plainly(mod, checked=False), *inputs)


def call(executable: relax.VMExecutable, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run `main` and return its outputs, nested tuples flattened."""
    vm = relax.VirtualMachine(executable, tvm.cpu())
    return flat(vm["main"](*[tvm.runtime.tensor(x) for x in inputs]))


def flat(result: object) -> list[np.ndarray]:
    """Flatten a tensor or nested arrays of tensors into numpy arrays."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [leaf for item in result for leaf in flat(item)]


def random_inputs(*shapes: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    """Return reproducible float32 arrays in [-1, 1)."""
    rng = np.random.default_rng(seed)
    return [(rng.random(shape) * 2 - 1).astype("float32") for shape in shapes]


def structure(mod: tvm.IRModule) -> list[str]:
    """Return for each binding of `main` the kernel or operator it calls."""
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, tvm.ir.Call):
                name = getattr(value.op, "name", None) or value.op.name_hint
                found.append(value.args[0].name_hint if name == "relax.call_tir" else name)
    return found
