"""Check a model's memory plan: run it without reuse and with, and compare every kernel's result.

The plan under test also poisons each freed buffer, with NaN or 0xA5, so that a stale read shows.
Both versions run the same kernels in the same order, but for copies into a concatenation. What a
call writes in the version without reuse must be, bit by bit, what it writes in the other one; the
first tensor that differs is named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx

from relaxc.bind_inputs import to_tensor
from relaxc.errors import CompileError, InvalidInput
from relaxc.random_inputs import random_inputs
from relaxc.stored_elements import to_stored

if TYPE_CHECKING:
    from relax_passes.pipeline import Pipeline

# Kernels of the debug mode itself, and copies that one plan needs and another does not.
_NOT_COMPARED = ("poison_", "copy_part")


@dataclass(frozen=True)
class MemoryCheck:
    """What the check found: arena bytes without and with reuse, and the first difference."""

    bytes_without_reuse: int
    arena_bytes: int
    kernel_calls: int
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every kernel wrote the same bits in both versions."""
        return not self.difference


def check_memory(
    source: Any,
    *,
    dynamic_shapes: Any = None,
    threads: int | None = None,
    passes: Pipeline | None = None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
) -> MemoryCheck:
    """Run a model with planning off and on, on this machine's CPU, and compare all tensors.

    Args:
        source: What `relaxc.compile` takes, but a `torch.nn.Module`.
        dynamic_shapes: As in `relaxc.compile`.
        threads: Threads; all available cores by default.
        passes: The pipeline; the default one if None.
        seed: Seed of the random inputs.
        dims: Sizes of symbolic dimensions by name.

    Raises:
        InvalidInput: If the pipeline does not plan memory.
        CompileError: If a phase fails; the verifier's rejection of a plan is one.
    """
    from relax_passes.pass_base import PassContext
    from relax_passes.pipeline import Pipeline, default_pipeline
    from relaxc.compiler import import_source, running_phase
    from relaxc.targets import resolve_target
    from relaxc.thread_pool import available_cores
    from tir_schedules.machine import Machine

    pipeline = passes if passes is not None else default_pipeline()
    if "memory" not in pipeline.phases:
        raise InvalidInput("the pipeline has no phase 'memory' to check")
    count = threads or available_cores()
    target = resolve_target("llvm", count)
    ctx = PassContext(target, Machine.from_target(target), count)
    imported = import_source(source, dynamic_shapes=dynamic_shapes)
    with running_phase("schedule"):
        scheduled = pipeline.until("schedule").run(imported.module, ctx)
    memory = Pipeline({"memory": pipeline.phases["memory"]})
    plain = memory.with_options("plan_memory", reuse=False, in_place=False)
    feeds = random_inputs(imported.inputs, seed=seed, dims=dims)
    inputs = [
        to_tensor(to_stored(feeds[spec.name], "numpy", spec.dtype), "numpy", tvm.cpu())
        for spec in imported.inputs
    ]

    traces, sizes = [], []
    for version in (plain, memory.with_options("plan_memory", poison=True)):
        with running_phase("memory"):
            planned = version.run(scheduled, ctx)
        sizes.append(ctx.log.metrics["arena_bytes"])
        traces.append(_trace(planned, ctx, inputs))
    difference = _first_difference(*traces)
    return MemoryCheck(sizes[0], sizes[1], len(traces[0]), difference)


@dataclass(frozen=True)
class _KernelCall:
    """One call: digests of the tensors it changed, and of all its tensors afterwards."""

    name: str
    written: list[str]
    after: frozenset[str]


def _trace(planned: tvm.IRModule, ctx: Any, inputs: list[Any]) -> list[_KernelCall]:
    """Run a planned module once; return what each kernel wrote, under its tensor's name."""
    from relax_passes.build import build_executable
    from relaxc.compiler import running_phase

    with running_phase("build"):
        machine = relax.VirtualMachine(build_executable(planned, ctx), tvm.cpu())
    kernels = {v.name_hint for v, f in planned.functions.items() if isinstance(f, tirx.PrimFunc)}
    calls: list[_KernelCall] = []
    before: list[str] = []

    def observe(_: Any, symbol: str, before_run: bool, __: Any, *args: Any) -> int:
        if symbol in kernels and not symbol.startswith(_NOT_COMPARED):
            digests = [_digest(arg) for arg in args if isinstance(arg, tvm.runtime.Tensor)]
            if before_run:
                before[:] = digests
            else:
                changed = [a for a, b in zip(digests, before, strict=True) if a != b]
                written = [*changed, digests[-1]] if digests else []
                calls.append(_KernelCall(symbol, written, frozenset(digests)))
        return 0  # run the call

    machine.set_instrument(observe)
    try:
        machine["main"](*inputs)
    except tvm.error.InternalError as fault:
        raise CompileError(f"the planned model does not run: {fault}") from fault
    names = _tensor_names(planned)
    if len(names) == len(calls):  # no branches: calls happen as they are written
        calls = [
            _KernelCall(f"{tensor} ({call.name})", call.written, call.after)
            for tensor, call in zip(names, calls, strict=True)
        ]
    return calls


def _tensor_names(planned: tvm.IRModule) -> list[str]:
    """Return for each kernel call of `main`, in order, the name of its last argument."""
    names = []
    for block in planned["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            callee = getattr(value, "op", None)
            if isinstance(callee, tvm.ir.GlobalVar) and not callee.name_hint.startswith(
                _NOT_COMPARED
            ):
                tensors = [arg for arg in value.args if isinstance(arg.ty, relax.TensorType)]
                names.append(getattr(tensors[-1], "name", "") if tensors else "")
    return names


def _first_difference(plain: list[_KernelCall], reused: list[_KernelCall]) -> str:
    """Name the first call whose results differ, "" if none does."""
    for number, (want, got) in enumerate(zip(plain, reused, strict=False)):
        if not set(want.written) <= got.after:
            return f"kernel call {number} of {len(plain)} writes other bits: {want.name}"
    if len(plain) != len(reused):
        return f"{len(plain)} kernel calls without reuse, {len(reused)} with"
    return ""


def _digest(tensor: Any) -> str:
    array = tensor.numpy()
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest() + str(array.shape)
