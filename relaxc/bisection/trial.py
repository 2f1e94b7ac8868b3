"""One configuration of the pipeline, run and measured against the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm

from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pipeline import Pipeline
from relaxc.check import OutputError, as_tuple, compare_outputs
from tir_schedules.machine import Machine


@dataclass(frozen=True)
class Trial:
    """What one configuration gave: the outputs' errors, or the fault that kept it from running."""

    name: str
    errors: tuple[OutputError, ...] = ()
    fault: str = ""

    @property
    def worst(self) -> OutputError:
        """The output that is farthest off."""
        return max(self.errors, key=lambda error: error.relative)


@dataclass
class Judge:
    """Compiles and runs versions of one model on the same inputs.

    `expected` are the reference's outputs, `feeds` the inputs by name in the order of `main`.
    """

    feeds: Mapping[str, np.ndarray]
    names: Sequence[str]
    target: Any
    threads: int
    expected: list[np.ndarray] = field(default_factory=list)

    def run(self, mod: tvm.IRModule, pipeline: Pipeline) -> list[np.ndarray]:
        """Compile `mod` through `pipeline` and run it."""
        import relaxc

        model = relaxc.compile(
            mod, target=self.target, threads=self.threads, passes=pipeline, progress=False
        )
        return list(as_tuple(model(*self.feeds.values())))

    def run_plainly(self, mod: tvm.IRModule) -> list[np.ndarray]:
        """Build `mod` by TVM's own pipeline, none of our passes and schedules, and run it."""
        plain = tvm.relax.transform.DecomposeOpsForInference()(mod)
        executable = tvm.compile(plain, target=self.target)
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
        result = machine["main"](*(tvm.runtime.tensor(value) for value in self.feeds.values()))
        return [t.numpy() for t in ([result] if hasattr(result, "numpy") else result)]

    def try_out(self, name: str, run: Callable[[], list[np.ndarray]]) -> Trial:
        """Measure what `run` returns against the reference; a fault is a result too."""
        try:
            return Trial(name, tuple(compare_outputs(run(), self.expected, self.names)))
        except Exception as fault:  # whatever a pass, TVM or a kernel raises
            lines = str(fault).strip().splitlines() or [repr(fault)]
            return Trial(name, fault=f"{type(fault).__name__}: {lines[-1].strip()}")

    def run_passes(self, mod: tvm.IRModule, passes: Sequence[GraphPass]) -> tvm.IRModule:
        """Return `mod` after some passes."""
        machine = Machine.from_target(self.target)
        ctx = PassContext(self.target, machine, self.threads)
        with self.target:
            for graph_pass in passes:
                mod, _ = graph_pass(mod, ctx)
        return mod
