"""Compare what planners take for a model's intermediates: TVM's, ONNX Runtime's arena, and ours.

`python -m benchmarks.arena_bytes --output table.md` needs no quiet machine: all that is timed is
the CPU time of the memory phase (order, plan, verification). ONNX Runtime's figure is what its
arena grows by in its first run (`relaxc/ort_arena.py`). That arena holds the outputs too, so ours
is compared with them added.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import zoo
from benchmarks.example_feeds import example_feeds


@dataclass(frozen=True)
class Arena:
    """Bytes for the intermediates of one call, and the CPU seconds that planning them took."""

    model: str
    naive: int
    tvm: int
    onnxruntime: int
    relaxc: int
    outputs: int
    lower_bound: int
    seconds: float

    def with_outputs(self) -> int:
        """Return the bytes that compare with ONNX Runtime's."""
        return self.relaxc + self.outputs


def measure(name: str) -> Arena:
    """Plan a zoo model by every planner.

    Args:
        name: One of `zoo.BUILT`.
    """
    from relaxc.ort_arena import onnxruntime_arena_bytes

    path = zoo.onnx_path(name)
    planned = plan(path)
    return Arena(
        name,
        planned.metrics["naive_bytes"],
        planned.metrics["tvm_planner_bytes"],
        onnxruntime_arena_bytes(path, example_feeds(name, path)) or 0,
        planned.metrics["arena_bytes"],
        planned.outputs,
        planned.metrics["lower_bound_bytes"],
        planned.seconds,
    )


@dataclass(frozen=True)
class Planned:
    """The pipeline's metrics, the bytes of the outputs, and the CPU seconds of the memory phase."""

    metrics: dict[str, Any]
    outputs: int
    seconds: float


def plan(path: Path) -> Planned:
    """Run relaxc's pipeline for the model at `path`."""
    from relax_passes.analysis.size_bounds import SizeBounds
    from relax_passes.pass_base import PassContext
    from relax_passes.pipeline import Pipeline, default_pipeline
    from relaxc.compiler import import_source
    from relaxc.targets import resolve_target
    from tir_schedules.machine import Machine

    target = resolve_target("llvm", 1)
    context = PassContext(target, Machine.from_target(target))
    module = import_source(path).module
    scheduled = default_pipeline().until("schedule").run(module, context)
    memory = Pipeline({"memory": default_pipeline().phases["memory"]})
    start = time.process_time()
    memory.run(scheduled, context)
    seconds = time.process_time() - start
    memory.with_options("plan_memory", compare=True).run(scheduled, context)  # TVM's planner too
    main = module["main"]
    returned = getattr(main.ret_ty, "fields", [main.ret_ty])
    bounds = SizeBounds(main)
    outputs = sum(bounds.bytes_of(ty) or 0 for ty in returned)
    return Planned(context.log.metrics, outputs, seconds)


def render(rows: Sequence[Arena]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| model | no reuse | TVM | ONNX Runtime, with outputs | relaxc, with outputs | ratio "
        "| relaxc | lower bound | peak / bound | planning, CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        theirs = row.onnxruntime
        ratio = f"{row.with_outputs() / theirs:.2f}" if theirs else "-"
        lines.append(
            f"| {row.model} | {row.naive:,} | {row.tvm:,} | {theirs:,} | {row.with_outputs():,} "
            f"| {ratio} | {row.relaxc:,} | {row.lower_bound:,} "
            f"| {row.relaxc / row.lower_bound:.3f} | {row.seconds:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the models asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(zoo.BUILT), choices=zoo.BUILT)
    parser.add_argument("--output", type=Path, help="file that takes the table")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.models:
        rows.append(measure(name))
        print(render(rows[-1:]).splitlines()[-1], flush=True)
        if options.output is not None:
            options.output.write_text(render(rows))


if __name__ == "__main__":
    main()
