"""Run one random graph and judge it.

passes   the graph through the pipeline with optional passes off, phases reordered or passes run
         twice, against NumPy and against the unoptimized module
onnx     the graph as an ONNX file through the importer and the pipeline, against ONNX Runtime
memory   the graph with its memory planned and with every tensor allocated: bit-equal
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import Pipeline
from tests.fuzz.graphs.emit_onnx import emit_onnx
from tests.fuzz.graphs.emit_relax import emit_relax
from tests.fuzz.graphs.evaluate import difference, evaluate, flat, input_arrays, symbol_values
from tests.fuzz.graphs.generate import generate
from tests.fuzz.graphs.kernel_cache import (
    AS_SHIPPED,
    QUICK,
    UNCHECKED,
    build_cached,
    cached_pipeline,
)
from tests.fuzz.graphs.recipe import Recipe
from tests.fuzz.graphs.variants import Variant, choose_variant
from tir_schedules.machine import Machine, host_target

MODES = ("passes", "onnx", "memory")
GOOD = "equal"


@dataclass(frozen=True)
class Job:
    """A graph by its seed, or a smaller one made of it, and what to do with it."""

    mode: str
    seed: str
    number: int
    largest: int = 25
    recipe: Recipe | None = None
    variant: Variant | None = None

    @property
    def name(self) -> str:
        return f"{self.mode}/{self.seed}/{self.number}"

    def graph(self) -> Recipe:
        """Return the graph."""
        if self.recipe is not None:
            return self.recipe
        return generate(
            self.name,
            onnx=self.mode == "onnx",
            aliases=self.mode == "memory" and self.number % 4 != 0,
            largest=self.largest,
        )


@dataclass(frozen=True)
class Outcome:
    """How a case ended: "equal", "differs", "raises", "died", or "invalid": no legal graph."""

    word: str
    detail: str = ""

    def kind(self) -> str:
        """Return what two outcomes of one fault have in common."""
        lines = self.detail.strip().splitlines() or [""]
        what = {"raises": lines[-1][:60], "died": lines[0][:9]}
        return f"{self.word}: {what.get(self.word, '')}"

    @property
    def hangs(self) -> bool:
        """Whether the process was stopped because it did not answer."""
        return self.word == "died" and self.detail.startswith("no answer")


def run_case(job: Job) -> Outcome:
    """Run a job in this process."""
    recipe = job.graph()
    try:
        source = emit_onnx(recipe) if job.mode == "onnx" else emit_relax(recipe)
    except Exception:  # noqa: BLE001 - a recipe made smaller may be no legal graph
        return Outcome("invalid", traceback.format_exc())
    variant = job.variant or choose_variant(f"{job.name}/variant", job.mode)
    try:
        problem = _JUDGES[job.mode](recipe, source, variant)
    except Exception:  # noqa: BLE001 - whatever is raised is this case's outcome
        return Outcome("raises", f"{variant}\n{traceback.format_exc()}")
    return Outcome("differs", f"{variant}\n{problem}") if problem else Outcome(GOOD)


def _context(variant: Variant | None = None) -> PassContext:
    target = host_target(1)
    precision = "strict" if variant is not None and variant.strict else "float32"
    return PassContext(target, Machine.from_target(target), precision=precision)


def _sizes(recipe: Recipe) -> list[int]:
    """Return what the symbols of the inputs stand for, call after call."""
    return [3, 1, 5] if recipe.symbols else [0, 1]


def _check(machine: relax.VirtualMachine, recipe: Recipe) -> str:
    """Run twice or more; compare with NumPy. Earlier results and inputs must stay as they are."""
    kept: list[tuple[int, Sequence[Any], Sequence[np.ndarray]]] = []
    for call, base in enumerate(_sizes(recipe)):
        values = symbol_values(recipe, base)
        inputs = input_arrays(recipe, values, call)
        wanted, allowed = evaluate(recipe, inputs, values)
        given = [tvm.runtime.tensor(x) for x in inputs]
        got = flat(machine["main"](*given))
        problem = difference(got, wanted, allowed)
        if problem:
            return f"call {call}, symbols {values}: {problem}"
        for before, after in zip(inputs, given, strict=True):
            if not np.array_equal(before, after.numpy()):
                return f"call {call}: an input was overwritten"
        kept.append((call, got, [g.copy() for g in got]))
    for call, got, copies in kept:
        if any(not np.array_equal(g, c, equal_nan=g.dtype.kind == "f")
               for g, c in zip(got, copies, strict=True)):  # fmt: skip
            return f"a result of call {call} was overwritten by a later call"
    return ""


# The three modes ----------------------------------------------------------------------------------


def _judge_passes(recipe: Recipe, mod: tvm.IRModule, variant: Variant) -> str:
    ctx = _context(variant)
    pipeline = variant.apply(cached_pipeline())
    machine = build_cached(pipeline.run(mod, ctx), ctx, QUICK if variant.quick else UNCHECKED)
    problem = _check(machine, recipe)
    if variant.unoptimized or problem:
        plain = _check(_unoptimized(mod), recipe)
        problem = f"{problem}; the unoptimized module: {plain or 'right'}" if problem else plain
    return problem


def _unoptimized(mod: tvm.IRModule) -> relax.VirtualMachine:
    """Build with what no graph can do without: operators to loop nests, default loops."""
    from relax_passes.decompose_inference import decompose_inference
    from relax_passes.lower_operators import lower_operators
    from relax_passes.wrap_integers import wrap_integers

    ctx = _context()
    with ctx.target:
        mod, _ = decompose_inference(mod, ctx)
        mod, _ = lower_operators(mod, ctx)
        mod, _ = wrap_integers(mod, ctx)
        functions = {
            var: func.with_attr("tirx.is_scheduled", 1) if isinstance(func, tirx.PrimFunc) else func
            for var, func in mod.functions.items()
        }
    return build_cached(tvm.IRModule(functions, attrs=mod.attrs), ctx)


def _judge_onnx(recipe: Recipe, model: Any, variant: Variant) -> str:
    from frontends.onnx import import_onnx
    from tests.fuzz.graphs.onnx_runtime import run_onnx_runtime

    ctx = _context(variant)
    imported = import_onnx(model)
    module = variant.apply(cached_pipeline()).run(imported.module, ctx)
    machine = build_cached(module, ctx, QUICK if variant.quick else UNCHECKED)
    problem = _check(machine, recipe)
    values = symbol_values(recipe, _sizes(recipe)[0])
    inputs = input_arrays(recipe, values, 0)
    oracle = run_onnx_runtime(model, inputs)
    if oracle is None:
        return problem
    wanted, allowed = evaluate(recipe, inputs, values)
    theirs = difference(oracle, wanted, allowed)
    if problem:
        return f"{problem}; ONNX Runtime: {theirs or 'right'}"
    return f"ONNX Runtime differs: {theirs}" if theirs else ""


def _judge_memory(recipe: Recipe, mod: tvm.IRModule, variant: Variant) -> str:
    ctx = _context()
    scheduled = variant.apply(cached_pipeline()).until("schedule").run(mod, ctx)
    planned = Pipeline({"memory": cached_pipeline().phases["memory"]}).run(scheduled, ctx)
    kernels = QUICK if variant.quick else AS_SHIPPED
    machine = build_cached(planned, ctx, kernels)
    unplanned = build_cached(_without_plan(scheduled, planned, ctx), ctx, kernels)
    for call, base in enumerate([*_sizes(recipe), _sizes(recipe)[0]]):
        values = symbol_values(recipe, base)
        inputs = input_arrays(recipe, values, call)
        results = [
            flat(vm["main"](*(tvm.runtime.tensor(x) for x in inputs)))
            for vm in (machine, unplanned)
        ]
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                return f"call {call}, symbols {values}: result {i} differs with planning off"
    return ""


def _without_plan(scheduled: tvm.IRModule, planned: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
    """Return the scheduled module with every tensor allocated on its own."""
    memory = cached_pipeline().phases["memory"]
    if _joins_parts(scheduled):
        # Only the planner can write parts of a concatenation; here it copies them.
        apart = Pipeline({"memory": memory}).with_options(
            "plan_memory", reuse=False, in_place=False, join=False
        )
        return apart.run(scheduled, ctx)
    # The kernels are those of the planned module, which take any offset.
    kernels = {var.name_hint: f for var, f in planned.functions.items()}
    functions = {
        var: kernels.get(var.name_hint, func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in scheduled.functions.items()
    }
    return tvm.IRModule(functions, attrs=scheduled.attrs)


def _joins_parts(mod: tvm.IRModule) -> bool:
    """Tell whether a concatenation is left without a kernel."""
    concat, found = tvm.ir.Op.get("relax.concat"), []

    def visit(call: tvm.ir.Call) -> None:
        if call.op == concat:
            found.append(call)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    return bool(found)


_JUDGES = {"passes": _judge_passes, "onnx": _judge_onnx, "memory": _judge_memory}
