"""What calling ResNet-18 through torch.compile costs more than calling its CompiledModel.

`python -m benchmarks.call_cost [--threads 1 2] [--sizes 32 224] [--results FILE]` calls both in
turns, call by call, and says where the time goes: Dynamo's guards and frames, AOTAutograd's
wrapper, our call plan, the compiled function. The CPU's caches hold what the call before left
there, or (emptied) 64 MiB of other data. Results are compared first. Times are medians in us.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import relaxc
from benchmarks import zoo
from benchmarks.markdown_table import table_lines
from relaxc.compiled_model import CompiledModel
from relaxc.torch_compile import backend
from relaxc.torch_compile.call_plan import CallPlan

_TOLERANCE = 1e-4
_CACHES = 64 << 20  # bytes, more than caches hold
_SETTLING = 40  # calls that are not counted: prepared weights move into huge pages meanwhile
_HEADER = (
    "image", "threads", "caches", "torch.compile", "CompiledModel", "difference", "of the best",
    "Dynamo", "AOTAutograd", "call plan", "function", "CompiledModel's call", "function",
)  # fmt: skip


class Stopwatch:
    """Seconds that functions took in their last call, by name; those within others included."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time noted."""

        def run(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            self.seconds[name] = time.perf_counter() - start
            return result

        run.__dict__.update(getattr(function, "__dict__", {}))  # how AOTAutograd calls it
        return run


def watch_layers(watch: Stopwatch) -> None:
    """Time our own layers from here on: the call plan, and the function that it calls."""
    entry, prepared_entry = CompiledModel.entry, CompiledModel.prepared_entry

    def timed_entry(model: CompiledModel) -> tuple[Any, Any]:
        main, device = entry(model)
        return watch.timed("function", main), device

    def timed_prepared_entry(model: CompiledModel) -> tuple[Any, Any]:
        prepare, main = prepared_entry(model)
        return prepare, watch.timed("function", main)

    plan = watch.timed("plan", CallPlan.__call__)
    for owner, name, function in (
        (CompiledModel, "entry", timed_entry),
        (CompiledModel, "prepared_entry", timed_prepared_entry),
        (CallPlan, "__call__", lambda self, given: plan(self, given)),
    ):
        setattr(owner, name, function)


def measure(watch: Stopwatch, size: int, threads: int, calls: int) -> Iterator[list[str]]:
    """Yield the rows of an image of `size` x `size`: warm caches, emptied ones.

    Raises:
        AssertionError: If the results differ by more than 1e-4 of the greatest.
    """
    module, _ = zoo.torch_model("resnet18")
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    model = relaxc.compile(module, (image,), threads=threads)
    torch._dynamo.reset()

    def timed_backend(graph: Any, inputs: Any) -> Any:
        return watch.timed("backend", backend(graph, inputs, options={"threads": threads}))

    # The name of the function is taken last: the one within `whole` notes it, too.
    turns = [
        watch.timed("whole", torch.compile(module, backend=timed_backend)),
        watch.timed("direct", model),
        watch.timed("bare", model.entry()[0]),
    ]
    with torch.inference_mode():
        got, want = (function(image) for function in turns[:2])
        error = float((got - want).abs().max() / want.abs().max())
        if not error <= _TOLERANCE:  # also catches NaN
            raise AssertionError(f"difference {error:.1e}")
        for caches, other in (("warm", None), ("emptied", torch.zeros(_CACHES // 4))):
            taken = defaultdict(list)
            for call in range(_SETTLING + calls):
                for function in turns:
                    if other is not None:
                        other.add_(1)
                    function(image)
                    if function is turns[0]:
                        inner = watch.seconds["function"]
                for name, seconds in {**watch.seconds, "function": inner}.items():
                    if call >= _SETTLING:
                        taken[name].append(seconds * 1e6)
            yield [f"{size} x {size}", str(threads), caches, *_cells(taken)]


def _cells(taken: dict[str, list[float]]) -> list[str]:
    """Return whole calls, their differences, and the parts of each."""

    def between(outer: str, inner: str) -> float:
        pairs = zip(taken[outer], taken[inner], strict=True)
        return statistics.median(a - b for a, b in pairs)

    middle = {name: statistics.median(times) for name, times in taken.items()}
    figures = [
        middle["whole"], middle["direct"], middle["whole"] - middle["direct"],
        min(taken["whole"]) - min(taken["direct"]),
        between("whole", "backend"), between("backend", "plan"), between("plan", "function"),
        middle["function"], middle["direct"] - middle["bare"], middle["bare"],
    ]  # fmt: skip
    return [f"{figure:.0f}" for figure in figures]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=[32, 224])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--results", type=Path, help="a Markdown file to write the table to")
    options = parser.parse_args(arguments)
    watch = Stopwatch()
    watch_layers(watch)
    rows = []
    for size in options.sizes:
        for threads in options.threads:
            for row in measure(watch, size, threads, options.calls):
                rows.append(row)
                print(" ".join(row), flush=True)
    table = "\n".join(table_lines(_HEADER, rows))
    if options.results:
        options.results.write_text(f"# What a call through torch.compile costs\n\n{table}\n")


if __name__ == "__main__":
    main()
