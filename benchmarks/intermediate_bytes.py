"""Count the bytes of a model's intermediates in ONNX Runtime's optimized graph and in ours.

`python -m benchmarks.intermediate_bytes --output table.md` needs no quiet machine: nothing is
timed. An intermediate is what one kernel writes and another reads; inputs, weights, results and
the workspace inside a kernel count on neither side, and a view counts as what it looks at.

ONNX Runtime's graph is the one it saves after all its optimizations for the CPU. Shape inference
does not know its own operators (`com.microsoft`, blocked layouts), so the saved graph is run with
every intermediate as an output, and the arrays that come out are measured.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import zoo
from benchmarks.example_feeds import example_feeds

if TYPE_CHECKING:
    import numpy as np
    import onnx

# ONNX Runtime lets their result share the bytes of their first operand.
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


@dataclass(frozen=True)
class Traffic:
    """How many kernels run, and the bytes of the intermediates between them."""

    kernels: int
    bytes: int


def ort_traffic(path: Path, feeds: dict[str, np.ndarray]) -> Traffic:
    """Count the intermediates of ONNX Runtime's optimized graph of the model at `path`.

    Args:
        path: An ONNX file of static sizes.
        feeds: One array per input, as `example_feeds` makes them.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "optimized.onnx"
        _session(path, optimized=saved)
        model = onnx.load(str(saved))
        root = view_roots(model.graph)
        escaping = {root.get(value.name, value.name) for value in model.graph.output}
        read = {name for node in model.graph.node for name in node.input}
        kept = [
            name
            for node in model.graph.node
            if node.op_type not in VIEWS
            for name in node.output
            if name in read and name not in escaping
        ]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in kept)
        exposed = Path(folder) / "exposed.onnx"
        onnx.save(model, str(exposed))
        values = _session(exposed).run(kept, feeds) if kept else []
    kernels = sum(node.op_type not in VIEWS for node in model.graph.node)
    return Traffic(kernels, sum(value.nbytes for value in values))


def view_roots(graph: onnx.GraphProto) -> dict[str, str]:
    """Return for the result of each view the name of the tensor whose bytes it shows."""
    root: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in VIEWS:
            root[node.output[0]] = root.get(node.input[0], node.input[0])
    return root


def our_traffic(path: Path, *, without: Sequence[str] = ()) -> Traffic:
    """Count the intermediates of relaxc's module of the model at `path`, as the report has them.

    Args:
        path: An ONNX file of static sizes.
        without: Passes to switch off.
    """
    import tvm

    from relax_passes.pass_base import PassContext
    from relax_passes.pipeline import default_pipeline
    from relaxc.compiler import import_source
    from relaxc.targets import resolve_target
    from tir_schedules.machine import Machine

    target = resolve_target("llvm", 1)
    context = PassContext(target, Machine.from_target(target))
    # Where the bytes lie is of no interest here: the fastest strategy will do.
    passes = default_pipeline().without(*without).with_options("plan_memory", strategy="best_fit")
    planned = passes.run(import_source(path).module, context)
    kernels = sum(
        isinstance(getattr(binding.value, "op", None), tvm.ir.GlobalVar)
        and isinstance(planned[binding.value.op], tvm.tirx.PrimFunc)
        for block in planned["main"].body.blocks
        for binding in block.bindings
    )
    return Traffic(kernels, context.log.metrics["naive_bytes"])


def render(rows: Sequence[tuple[str, Traffic, Traffic]]) -> str:
    """Return the table as Markdown; each row is a model, ONNX Runtime's traffic, and ours."""
    lines = [
        "| model | kernels, ONNX Runtime | relaxc | bytes, ONNX Runtime | relaxc | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, ort, ours in rows:
        ratio = f"{ours.bytes / ort.bytes:.2f}" if ort.bytes else "-"
        lines.append(
            f"| {name} | {ort.kernels} | {ours.kernels} "
            f"| {ort.bytes:,} | {ours.bytes:,} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the models asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(zoo.BUILT), choices=zoo.BUILT)
    parser.add_argument("--without", nargs="*", default=[], help="passes to switch off")
    parser.add_argument("--output", type=Path, help="file that takes the table")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.models:
        path = zoo.onnx_path(name)
        ort = ort_traffic(path, example_feeds(name, path))
        rows.append((name, ort, our_traffic(path, without=options.without)))
        print(render(rows[-1:]).splitlines()[-1], flush=True)
    if options.output is not None:
        options.output.write_text(render(rows))


def _session(path: Path, optimized: Path | None = None) -> object:
    """Open a model; `optimized` takes the graph after all optimizations, else none are done."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3  # it warns that a saved graph suits only this processor
    level = ort.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_DISABLE_ALL
    if optimized is not None:
        settings.graph_optimization_level = level.ORT_ENABLE_ALL
        settings.optimized_model_filepath = str(optimized)
    settings.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
