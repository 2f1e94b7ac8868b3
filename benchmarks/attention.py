"""Attention against the FMA peak and against torch's scaled_dot_product_attention.

`python -m benchmarks.attention [--threads 2] [--rounds 20] [--results FILE]` measures 12 heads of
64 columns at several lengths, plain and causal, and checks the numbers against float64. The engines
take turns in every round; times are medians and minima over rounds. The peak is measured in the
same run, in short rounds between the others. On a loaded machine `--threads 1 --clock cpu` counts
the seconds that the thread itself ran.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tvm
from tvm import te
from tvm.target import Target

from benchmarks.gemm_shapes import compiled
from benchmarks.machine_limits import fma_peak
from benchmarks.markdown_table import table_lines
from benchmarks.turns import CLOCKS, Clock, take_turns
from relaxc.thread_pool import use_threads
from tir_schedules import Machine, host_target, schedule_func
from tir_schedules.attention import attention
from tir_schedules.attention_variants import causal

HEADS, SIZE = 12, 64
LENGTHS = (128, 384, 512, 1024, 2048, 4096)
_TOLERANCE = 1e-5
_HEADER = ("tokens", "mask", "ours ms", "best", "GFLOP/s", "of peak", "torch ms", "best", "ratio")


@dataclass(frozen=True)
class Row:
    """Seconds of both engines at one length; FLOPs are those of the scores that count."""

    tokens: int
    masked: bool
    ours: list[float]
    torch: list[float]
    flops: int

    def cells(self, peak: float) -> list[str]:
        """Return the row of the table."""
        best, theirs = min(self.ours), min(self.torch)
        rate = self.flops / best / 1e9
        return [
            str(self.tokens),
            "causal" if self.masked else "none",
            f"{statistics.median(self.ours) * 1e3:.2f}",
            f"{best * 1e3:.2f}",
            f"{rate:.0f}",
            f"{rate / peak:.0%}",
            f"{statistics.median(self.torch) * 1e3:.2f}",
            f"{theirs * 1e3:.2f}",
            f"{best / theirs:.2f}",
        ]


def kernel(tokens: int, masked: bool, target: Target) -> Callable[..., None]:
    """Return the compiled attention of one length: (q, k, v, out)."""
    tensors = [te.placeholder((1, tokens, HEADS, SIZE), name=name) for name in "qkv"]
    out = attention(*tensors, mask_mod=causal() if masked else None)
    func = te.create_prim_func([*tensors, out], index_dtype_override="int64")
    scheduled = schedule_func(func, target)
    if scheduled.rule != "attention":
        raise AssertionError(f"the rule {scheduled.rule} took the kernel: {scheduled.declined}")
    return compiled(scheduled.func, target)


def measure(tokens: int, masked: bool, target: Target, rounds: int, clock: Clock) -> Row:
    """Return the times of one length.

    Raises:
        AssertionError: If the result is off by more than 1e-5 of the largest value.
    """
    rng = np.random.default_rng(tokens)
    arrays = [rng.standard_normal((1, tokens, HEADS, SIZE)).astype("float32") for _ in range(3)]
    ours, inputs = kernel(tokens, masked, target), [tvm.runtime.tensor(a) for a in arrays]
    out = tvm.runtime.tensor(np.full(arrays[0].shape, np.nan, "float32"))
    theirs = [torch.from_numpy(a).transpose(1, 2).contiguous() for a in arrays]
    function = torch.nn.functional.scaled_dot_product_attention
    calls = (lambda: ours(*inputs, out), lambda: function(*theirs, is_causal=masked))
    seconds = take_turns(calls, rounds, clock)
    wide = function(*(x.double() for x in theirs), is_causal=masked).transpose(1, 2).numpy()
    error = np.abs(out.numpy() - wide).max() / np.abs(wide).max()
    if not error <= _TOLERANCE:  # also catches NaN
        raise AssertionError(f"{tokens} tokens: error {error:.2e}")
    scores = tokens * (tokens + 1) // 2 if masked else tokens * tokens
    return Row(tokens, masked, *seconds, 4 * HEADS * SIZE * scores)


def table(rows: Sequence[Row], peak: float) -> str:
    """Return the results as a Markdown table."""
    return "\n".join(table_lines(_HEADER, (row.cells(peak) for row in rows)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file of a folder if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--results", type=Path, help="a Markdown file to write the table to")
    options = parser.parse_args(arguments)
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu sees one thread only")
    use_threads(options.threads)
    target = host_target(options.threads)
    machine = Machine.from_target(target)
    torch.set_num_threads(options.threads)
    rows, peaks, clock = [], [], CLOCKS[options.clock]
    for tokens in options.lengths:
        for masked in (False, True):
            peaks.append(fma_peak(target))
            rows.append(measure(tokens, masked, target, options.rounds, clock))
            print(" ".join(rows[-1].cells(max(peaks) * options.threads)), flush=True)
    peak = max(peaks) * options.threads
    text = (
        f"{HEADS} heads of {SIZE} columns, float32, {options.threads} threads ({machine.name}), "
        f"{options.clock} clock, "
        f"FMA peak {peak:.0f} GFLOP/s; ratio = best time of ours / best time of "
        f"torch {torch.__version__.split('+')[0]}.\n\n{table(rows, peak)}\n"
    )
    print(text)
    if options.results:
        options.results.write_text(f"# Attention on a CPU\n\n{text}")


if __name__ == "__main__":
    main()
