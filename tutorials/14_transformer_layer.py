"""Tutorial 14: one layer of BERT, from a kernel for each operator down to seven.

    python tutorials/14_transformer_layer.py

The layer is written as the papers write it: a mean, a variance, an erf, a softmax. Part after part
of the compiler is switched on, and a table tells what each one is worth: kernels launched,
floating-point operations, bytes that kernels read and write, memory and allocations for the tensors
between them, and time. Every step computes the same numbers, and that is checked.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass

import torch
from stage_printing import columns, title
from torch import nn

import relaxc
from relax_passes.pipeline import Pipeline, default_pipeline
from relaxc import CompiledModel
from relaxc.compiler import import_source
from tir_schedules.llvm.rules import llvm_rules

# What is left schedules any kernel as plain loops.
RULES = tuple(rule.name for rule in llvm_rules() if rule.name != "fallback")
TOKENS, WIDTH, HEADS, HIDDEN = 64, 256, 4, 1024
KIB = 1024


class Layer(nn.Module):
    """One encoder layer (Devlin et al., BERT, 2018), in elementary operators."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.project = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.widen, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(WIDTH) + 0.5) for _ in range(2))
        self.shifts = nn.ParameterList(nn.Parameter(torch.randn(WIDTH)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (1, tokens, width) to the same shape."""
        x = self.normalize(x + self.project(self.attend(x)), 0)
        hidden = self.widen(x)
        hidden = hidden * 0.5 * (1.0 + torch.erf(hidden / math.sqrt(2.0)))
        return self.normalize(x + self.narrow(hidden), 1)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return softmax(Q K^T / sqrt(d)) V, the heads side by side."""
        query, key, value = (
            layer(x).view(1, TOKENS, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        chances = powers / powers.sum(-1, keepdim=True)
        return (chances @ value).permute(0, 2, 1, 3).reshape(1, TOKENS, WIDTH)

    def normalize(self, x: torch.Tensor, which: int) -> torch.Tensor:
        """Return the layer norm: mean 0 and variance 1 along the width, then a scale and shift."""
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.scales[which] + self.shifts[which]


@dataclass(frozen=True)
class Step:
    """A part of the compiler that is switched on: its title, and the phases it has by default."""

    what: str
    phases: tuple[str, ...] = ()
    rules: bool = False
    planning: bool = False


STEPS = (
    Step("each operator a plain loop"),
    Step("+ schedules", rules=True),
    Step("+ packed weights", ("layout",)),
    Step("+ raising", ("raise",)),
    Step("+ rewriting, merging", ("rewrite",)),
    Step("+ fusion", ("fuse",)),
    Step("+ memory planning", planning=True),
)


def pipelines() -> list[Pipeline]:
    """Return the pipeline of each step: what the steps so far have switched on, nothing else."""
    full, result = default_pipeline(), []
    on: set[str] = set()
    rules = planning = False
    for step in STEPS:
        on |= set(step.phases)
        rules, planning = rules or step.rules, planning or step.planning
        pipeline = full
        for phase in ("raise", "rewrite", "layout", "fuse"):
            if phase not in on:
                pipeline = pipeline.with_phase(phase)
        if not rules:
            pipeline = pipeline.with_options("schedule_kernels", without_rules=RULES)
        if not planning:
            pipeline = pipeline.without("order_bindings").with_options(
                "plan_memory", reuse=False, in_place=False
            )
        result.append(pipeline)
    return result


def median_ms(models: list[CompiledModel], x: torch.Tensor, rounds: int = 15) -> list[float]:
    """Return the median time of each model; the models take turns, so that noise hits all."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(rounds):
        for model, spent in zip(models, times, strict=True):
            start = time.perf_counter()
            model(x)
            spent.append(time.perf_counter() - start)
    return [1e3 * statistics.median(spent) for spent in times]


def row(model: CompiledModel) -> list[int]:
    """Return launches, operations, bytes moved, bytes held and allocations of one run."""
    report, kernels = model.report, model.kernels
    return [
        sum(kernel["calls"] for kernel in kernels),
        *(sum(k["calls"] * k[what] for k in kernels) for what in ("flops", "bytes")),
        report.arena_bytes,
        sum(report.metrics["allocations_per_run"].values()),
    ]


def main() -> int:
    torch.manual_seed(0)
    layer, x = Layer().eval(), torch.randn(1, TOKENS, WIDTH)
    with torch.no_grad():
        wanted = layer(x)

    title("1. The layer as it is imported: its operators")
    module = import_source(layer, (x,)).module
    bound = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    names = Counter(v.op.name.removeprefix("relax.") for v in bound if hasattr(v, "op"))
    columns(sorted(names.items(), key=lambda item: -item[1]), "operator", "times")
    print(f"\n{sum(names.values())} operators, of which views cost nothing.")

    title("2. One part of the compiler after the other")
    models = [
        relaxc.compile(module, threads=1, passes=pipeline, progress=False)
        for pipeline in pipelines()
    ]
    errors = [float((model(x) - wanted).abs().max() / wanted.abs().max()) for model in models]
    rows = [row(model) for model in models]
    times = median_ms(models, x)
    table = [
        (
            step.what,
            launches,
            f"{flops / 1e6:.1f}",
            f"{moved / KIB:,.0f}",
            f"{held / KIB:,.0f}",
            allocations,
            f"{ms:.2f}",
            f"{error:.0e}",
        )
        for step, (launches, flops, moved, held, allocations), ms, error in zip(
            STEPS, rows, times, errors, strict=True
        )
    ]
    heads = ("step", "launches", "MFLOP", "KiB moved", "KiB held", "allocations", "ms", "error")
    columns(table, *heads)
    print(
        "\nSchedules win the time: the same loops, in vectors and registers. Raising finds layer"
        "\nnorms, the softmax, the GELU and then attention, whose scores are never stored. Merging"
        "\nmakes one product of query, key and value. Fusion puts bias, GELU and residual into the"
        "\nregisters of a product. Planning gives tensors that are not alive together one place."
    )

    title("3. What is left, and where the operations are")
    total = sum(kernel["calls"] * kernel["flops"] for kernel in models[-1].kernels)
    columns(
        [
            (
                kernel["name"],
                kernel["rule"],
                kernel["calls"],
                f"{kernel['calls'] * kernel['flops'] / total:.1%}",
                f"{kernel['flops'] / kernel['bytes']:.1f}",
            )
            for kernel in models[-1].kernels
        ],
        *("kernel", "schedule rule", "launches", "operations", "operations a byte"),
    )
    return int(max(errors) > 1e-5 or rows[-1][0] > 7 or rows[-1][3] * 4 > rows[0][3])


if __name__ == "__main__":
    sys.exit(main())
