"""One model of symbolic length against one compiled for each length.

`python -m benchmarks.symbolic_length [--model bert_base] [--threads 2] [--results FILE]` compiles
the zoo's BERT with the length of its sequence symbolic, and anew for each of eight lengths; both
run in turns on the same tokens, and their results are compared. Times are medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import relaxc
from benchmarks import zoo
from benchmarks.markdown_table import table_lines
from benchmarks.turns import take_turns

LENGTHS = (1, 7, 16, 64, 128, 197, 384, 512)
_TOLERANCE = 1e-5
_HEADER = ("tokens", "symbolic ms", "static ms", "ratio", "difference")


def symbolic_model(name: str) -> onnx.ModelProto:
    """Return the zoo's model with the second axis of each input symbolic.

    Raises:
        KeyError: If there is no built model of that name.
    """
    import torch

    module, example = zoo.torch_model(name)
    length = torch.export.Dim("length", min=2, max=512)
    shapes = tuple({1: length} for _ in example)
    program = torch.onnx.export(
        module, example, dynamo=True, dynamic_shapes=(shapes,), verbose=False,
        input_names=list(zoo.input_names(name)),
    )  # fmt: skip
    return program.model_proto


def measure(
    model: onnx.ModelProto, general: Any, tokens: int, threads: int, rounds: int
) -> list[str]:
    """Return the row of one length.

    Raises:
        AssertionError: If the results differ by more than 1e-5 of the greatest.
    """
    names = [value.name for value in model.graph.input]
    fixed = relaxc.compile(model, dynamic_shapes={n: {1: tokens} for n in names}, threads=threads)
    rng = np.random.default_rng(tokens)
    feeds = {name: np.ones((1, tokens), "int64") for name in names}
    feeds[names[0]] = rng.integers(0, 30000, (1, tokens))
    want, got = fixed(**feeds), general(**feeds)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    if not error <= _TOLERANCE:  # also catches NaN
        raise AssertionError(f"{tokens} tokens: difference {error:.1e}")
    calls = [partial(general, **feeds), partial(fixed, **feeds)]
    times = [statistics.median(taken) * 1e3 for taken in take_turns(calls, rounds)]
    return [
        str(tokens), *(f"{time:.2f}" for time in times), f"{times[0] / times[1]:.2f}",
        f"{error:.0e}",
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert_base", choices=zoo.BUILT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--results", type=Path, help="a Markdown file to write the table to")
    options = parser.parse_args(arguments)
    model = symbolic_model(options.model)
    general = relaxc.compile(model, threads=options.threads)
    rows = []
    for tokens in options.lengths:
        rows.append(measure(model, general, tokens, options.threads, options.rounds))
        print(" ".join(rows[-1]), flush=True)
    table = "\n".join(table_lines(_HEADER, rows))
    text = f"{options.model}, batch 1, {options.threads} threads, medians in turns.\n\n{table}\n"
    if options.results:
        options.results.write_text(f"# One model for all lengths\n\n{text}")


if __name__ == "__main__":
    main()
