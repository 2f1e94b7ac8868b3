"""Schedule, build and run one function as the schedule phase does; look at its machine code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R
from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules import Machine, Rule, host_target
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE

HOST = host_target(2)
AVX2 = Target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
AVX512 = Target(
    {"kind": "llvm", "mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu", "num-cores": 2}
)


def machine(target: Target = HOST) -> Machine:
    """Return the hardware model of `target`."""
    return Machine.from_target(target)


def compiled(func: PrimFunc, rule: Rule, target: Target = HOST) -> tvm.runtime.Executable:
    """Schedule `func` with one rule and compile it; a decline is an error."""
    scheduled = rule.apply(func, machine(target)).mod["main"]
    module = tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")})
    return tvm.compile(module, target=target, tir_pipeline=KERNEL_PIPELINE)


def run(
    func: PrimFunc, rule: Rule, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Run `func` under `rule`; `outputs` gives the shapes and dtypes of the results."""
    return _call(compiled(func, rule).jit(), inputs, outputs)


def _call(
    library: tvm.runtime.Module, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Call the one function of `library`.

    Results start as NaN (or as the smallest integer), so that an element never stored shows.
    """
    fills = [
        np.full(out.shape, np.nan if out.dtype.kind == "f" else np.iinfo(out.dtype).min, out.dtype)
        for out in outputs
    ]
    arrays = [tvm.runtime.tensor(np.array(array, order="C")) for array in [*inputs, *fills]]
    library["main"](*arrays)
    return [array.numpy() for array in arrays[len(inputs) :]]


def assert_runs(
    func: PrimFunc,
    rule: Rule,
    inputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    tolerance: float = 1e-5,
) -> None:
    """Assert that results are within `tolerance` of the largest expected value."""
    assert_all_run(func, rule, [(inputs, expected)], tolerance)


def assert_all_run(
    func: PrimFunc,
    rule: Rule,
    calls: Iterable[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]],
    tolerance: float = 1e-5,
) -> None:
    """Compile a function of symbolic sizes once; assert each call's results as `assert_runs`."""
    library = compiled(func, rule).jit()
    for inputs, expected in calls:
        for got, want in zip(_call(library, inputs, expected), expected, strict=True):
            scale = max(1e-6, float(np.abs(want).max())) if want.size else 1.0
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


def assembly(func: PrimFunc, rule: Rule, target: Target = AVX2) -> str:
    """Return the machine code of `func` under `rule`."""
    return str(compiled(func, rule, target).mod.inspect_source("asm"))


def libm_calls(asm: str) -> set[str]:
    """Return the names of the math library functions that machine code calls."""
    names = set(re.findall(r"call\w*\s+([a-z0-9_]+)(?:@PLT)?\s*$", asm, re.M))
    return names & {"expf", "exp2f", "tanhf", "erff", "logf", "log2f", "log10f", "log1pf", "powf"}


def hot_loop(asm: str, instruction: str) -> list[str]:
    """Return the lines of the basic block that holds most of `instruction`."""
    blocks = re.split(r"^\.LBB\w+:.*$", asm, flags=re.M)
    best = max(blocks, key=lambda block: block.count(instruction))
    return [line.strip() for line in best.splitlines() if line.strip()]


def legalized(emit: Callable[..., relax.Expr], *shapes: Sequence[int]) -> PrimFunc:
    """Return the one function TVM's legalization makes of an operator on float32 tensors."""
    params = [relax.Var(f"x{at}", R.Tensor(tuple(s), "float32")) for at, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(emit(*params)))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps()(builder.get())
    (func,) = [f for f in module.functions.values() if isinstance(f, PrimFunc)]
    return func
