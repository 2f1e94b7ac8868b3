"""Run a model's OpenCL C under PoCL or Oclgrind: kernels by pyopencl, the graph by this file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc

from relax_passes.constant_values import array_of
from relax_passes.memory.live_ranges import bindings_of
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from relaxc.device_sources import device_sources
from relaxc.targets import resolve_target
from tests.cuda.emulate import grid_of, kernel_statements
from tests.cuda.emulator.launch import Grid
from tir_schedules import Machine
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE

_SIGNATURE = re.compile(r"^__kernel void (\w+)\((.*)\) \{", re.MULTILINE)


@dataclass(frozen=True)
class ScheduledModel:
    """A graph whose kernels are scheduled for a target, and which rule took each."""

    module: tvm.IRModule
    target: Target
    rules: dict[str, str]
    declined: list[tuple[str, str, str]]

    @property
    def functions(self) -> dict[str, PrimFunc]:
        """The scheduled functions by name."""
        items = self.module.functions.items()
        return {var.name_hint: func for var, func in items if isinstance(func, PrimFunc)}

    def source(self) -> str:
        """Return the text of all kernels."""
        named = {n: f.with_attr("global_symbol", n) for n, f in self.functions.items()}
        library = tvm.compile(tvm.IRModule(named), target=self.target, tir_pipeline=KERNEL_PIPELINE)
        return "".join(device_sources(library.mod).values())


def schedule_for(kind: str, module: tvm.IRModule) -> ScheduledModel:
    """Carry a graph through the pipeline until its kernels are scheduled for a kind of target."""
    target = resolve_target(kind, 1)
    ctx = PassContext(target, Machine.from_target(target))
    module = default_pipeline().until("schedule").run(module, ctx)
    rules = {k["name"]: k["rule"] for k in ctx.log.metrics.get("kernels", [])}
    return ScheduledModel(module, target, rules, list(ctx.log.declined))


def kernels_of(func: PrimFunc) -> list[Grid]:
    """Return how each kernel of a scheduled function is launched, in order."""
    return [grid_of(statement) for statement in kernel_statements(func.body)]


class OpenClDevice:
    """A program of kernels on the first device that OpenCL has here."""

    def __init__(self, source: str) -> None:
        import pyopencl as cl

        self._cl = cl
        self._context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
        self._queue = cl.CommandQueue(self._context)
        self._program = cl.Program(self._context, source).build()
        self._parameters = {
            name: [tuple(each.split()[-2:]) for each in text.split(", ")]
            for name, text in _SIGNATURE.findall(source)
        }

    def run(self, name: str, func: PrimFunc, arrays: Sequence[np.ndarray]) -> None:
        """Run the kernels of a function of static sizes on arrays, which take the results."""
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        params = [p for p in func.params if hasattr(p, "shape")]
        given = dict(zip(_names(params), arrays, strict=True))
        root = getattr(func.body, "block", None)  # a kernel that is written out has none
        for buffer in getattr(root, "alloc_buffers", None) or ():
            if str(buffer.scope()) == "global":
                given[f"{buffer.name}_ptr"] = np.zeros(
                    [int(size) for size in buffer.shape], str(buffer.dtype)
                )
        memory = {
            key: self._cl.Buffer(self._context, flags, hostbuf=np.ascontiguousarray(array))
            for key, array in given.items()
        }
        for at, grid in enumerate(kernels_of(func)):
            kernel = f"{name}_kernel" + (f"_{at}" if at else "")
            launched = self._cl.Kernel(self._program, kernel)
            offset = {"long": np.int64(0), "int": np.int32(0)}  # where a buffer begins
            launched.set_args(
                *(memory[n] if n in memory else offset[ty] for ty, n in self._parameters[kernel])
            )
            work = [b * t for b, t in zip(grid.blocks, grid.threads, strict=True)]
            self._cl.enqueue_nd_range_kernel(self._queue, launched, work, list(grid.threads))
        for key, array in given.items():
            self._cl.enqueue_copy(self._queue, array, memory[key])
        self._queue.finish()


def _names(params: Sequence[Any]) -> list[str]:
    """Return the names that the code generator gives buffers: a repeated one gets a number."""
    seen: dict[str, int] = {}
    names = []
    for param in params:
        name = re.sub(r"\W", "_", param.name)
        count = seen[name] = seen.get(name, -1) + 1
        names.append(f"{name}_{count}_ptr" if count else f"{name}_ptr")
    return names


def run_model(
    model: ScheduledModel, inputs: Sequence[np.ndarray], source: str = ""
) -> list[np.ndarray]:
    """Run a scheduled graph of static sizes; return its results.

    Args:
        model: What `schedule_for("opencl", ...)` returns.
        inputs: In the order of the parameters.
        source: Its OpenCL C, which a test may have broken; the generated one by default.
    """
    main, functions = model.module["main"], model.functions
    device = OpenClDevice(source or model.source())
    values: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))

    def value_of(expr: Any) -> Any:
        if isinstance(expr, tvm.ir.GenericConst):
            return array_of(expr)
        if isinstance(expr, relax.Tuple):
            return [value_of(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value_of(expr.tuple_value)[expr.index]
        if isinstance(expr, tvm.ir.Call):
            return call(expr)
        return values[expr]

    def call(expr: Any) -> Any:
        operator = getattr(expr.op, "name", "")
        if operator == "relax.reshape":
            return value_of(expr.args[0]).reshape([int(size) for size in expr.ty.shape])
        assert operator == "relax.call_tir", operator
        given = [np.array(value_of(arg)) for arg in expr.args[1].fields]
        types = expr.ty.fields if isinstance(expr.ty, tvm.ir.TupleType) else [expr.ty]
        made = [np.zeros([int(s) for s in ty.shape], str(ty.dtype)) for ty in types]
        name = expr.args[0].name_hint
        device.run(name, functions[name], [*given, *made])
        return made if isinstance(expr.ty, tvm.ir.TupleType) else made[0]

    for binding in bindings_of(main):
        values[binding.var] = value_of(binding.value)
    result = value_of(main.body.body)
    return result if isinstance(result, list) else [result]
