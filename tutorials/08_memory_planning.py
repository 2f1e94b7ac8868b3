"""Tutorial 8: memory, from a buffer for each tensor down to the lower bound.

    python tutorials/08_memory_planning.py [picture.png]

Two models are followed, MobileNetV2 and BERT, both at small sizes: what is alive when, what each
step of the planning saves, how the strategies compare, and how a plan is checked.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tvm
from stage_printing import title

from relax_passes.memory.plan_offsets import STRATEGIES, plan_offsets
from relax_passes.memory.verify_offsets import OverlapError, verify_offsets
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import Pipeline, default_pipeline
from relaxc.check_memory import check_memory
from relaxc.compiler import import_source
from relaxc.drawing.memory_picture import draw_memory
from relaxc.errors import InvalidInput
from relaxc.report import Report
from tir_schedules.machine import Machine, host_target

KIB = 1024


def first_output(module: Any) -> Any:
    """Wrap a Hugging Face model so that it takes one tensor and returns one."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, return_dict=False)[0]

    return First().eval()


def models() -> dict[str, tvm.IRModule]:
    """Return MobileNetV2 (a third of the channels, 96 pixels) and BERT (2 layers, 64 tokens)."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    mobilenet = hf.MobileNetV2Model(hf.MobileNetV2Config(depth_multiplier=0.35, image_size=96))
    bert = hf.BertModel(
        hf.BertConfig(
            hidden_size=128,
            num_attention_heads=4,
            num_hidden_layers=2,
            intermediate_size=512,
            vocab_size=512,
        )
    )
    image, tokens = torch.zeros((1, 3, 96, 96)), torch.ones((1, 64), dtype=torch.int64)
    return {
        "MobileNetV2": import_source(first_output(mobilenet), (image,)).module,
        "BERT": import_source(first_output(bert), (tokens,)).module,
    }


def planned(scheduled: tvm.IRModule, without: tuple[str, ...] = (), **options: Any) -> PassContext:
    """Run the memory phase with these options; the context has the figures."""
    phase = Pipeline({"memory": default_pipeline().phases["memory"]}).without(*without)
    ctx = context()
    phase.with_options("plan_memory", **options).run(scheduled, ctx)
    return ctx


def context() -> PassContext:
    """Return a fresh context for this machine, one thread."""
    target = host_target(1)
    return PassContext(target, Machine.from_target(target), threads=1)


def show_life(buffers: list[dict[str, Any]], most: int = 12) -> None:
    """Print the first buffers: a bar over time, the size, the offset."""
    steps = max(buffer["upper"] for buffer in buffers)
    scale = max(1, -(-steps // 60))
    for buffer in buffers[:most]:
        start, length = (
            buffer["lower"] // scale,
            max(1, (buffer["upper"] - buffer["lower"]) // scale),
        )
        bar = " " * start + "#" * length
        print(f"{bar:62}{buffer['size'] / KIB:9.1f} KiB at {buffer['offset'] / KIB:9.1f} KiB")
    if len(buffers) > most:
        print(f"… {len(buffers) - most} more buffers")


def main() -> None:
    """Walk both models through all stages."""
    found = models()
    pipeline = default_pipeline().until("schedule")
    scheduled = {name: pipeline.run(module, context()) for name, module in found.items()}
    faults: list[str] = []

    title("1. Live ranges: when each intermediate tensor is written and read for the last time")
    plans = {name: planned(module, compare=True) for name, module in scheduled.items()}
    for name, ctx in plans.items():
        print(f"{name}: {len(ctx.log.metrics['memory_plan'])} buffers\n")
        show_life(ctx.log.metrics["memory_plan"])
        print()

    title("2. From no reuse to the bound")
    steps: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
        ("a buffer for each tensor", (), {"reuse": False, "in_place": False}),
        ("+ results in place", (), {"reuse": False}),
        ("reuse, first fit, not in place", ("order_bindings",),
         {"strategy": "first_fit", "in_place": False}),
        ("reuse, first fit, in place", ("order_bindings",), {"strategy": "first_fit"}),
        ("+ search to the lower bound", ("order_bindings",), {}),
        ("+ an order of kernels with a lower peak", (), {}),
        ("branches kept independent (for parallel runs)", (), {"parallel_safe": True}),
    ]  # fmt: skip
    print(f"{'':48}" + "".join(f"{name:>18}" for name in scheduled))
    for what, without, options in steps:
        sizes = [
            planned(module, without, **options).log.metrics["arena_bytes"]
            for module in scheduled.values()
        ]
        print(f"{what:48}" + "".join(f"{size / KIB:14,.0f} KiB" for size in sizes))
    for what, key in (("TVM's planner", "tvm_planner_bytes"), ("lower bound", "lower_bound_bytes")):
        row = [ctx.log.metrics[key] for ctx in plans.values()]
        print(f"{what:48}" + "".join(f"{size / KIB:14,.0f} KiB" for size in row))
    for name, ctx in plans.items():
        if ctx.log.metrics["arena_bytes"] != ctx.log.metrics["lower_bound_bytes"]:
            faults.append(f"{name}: the arena is not at its bound")

    title("3. The strategies, on the same live ranges")
    print("The offset problem needs no graph: (first step, step after the last, bytes) triples.\n")
    print(f"{'':24}" + "".join(f"{name:>18}" for name in plans))
    triples = {
        name: [(b["lower"], b["upper"], b["size"]) for b in ctx.log.metrics["memory_plan"]]
        for name, ctx in plans.items()
    }
    for strategy in STRATEGIES:
        results = [plan_offsets(buffers, strategy=strategy) for buffers in triples.values()]
        for buffers, plan in zip(triples.values(), results, strict=True):
            verify_offsets(buffers, plan.offsets, plan.peak)
        print(f"{strategy:24}" + "".join(f"{plan.ratio:10.2f} x bound" for plan in results))

    title("4. The verifier: liveness recomputed, and one buffer moved onto its neighbour")
    buffers = triples["MobileNetV2"]
    plan = plan_offsets(buffers)
    moved = next(
        (i, j)
        for j, (lower, upper, _) in enumerate(buffers)
        for i in range(j)
        if buffers[i][0] < upper and lower < buffers[i][1]
    )
    offsets = list(plan.offsets)
    offsets[moved[1]] = offsets[moved[0]]
    try:
        verify_offsets(buffers, offsets, 2 * plan.peak)
        faults.append("the verifier let an overlap pass")
    except OverlapError as fault:
        print(f"OverlapError: {fault}")

    title(
        "5. The proof by running: planning off and on, freed bytes poisoned (relaxc check --memory)"
    )
    checked = check_memory(found["BERT"], threads=1)
    print(f"BERT: {checked.kernel_calls} kernel calls, "
          f"{checked.bytes_without_reuse / KIB:,.0f} KiB without reuse, "
          f"{checked.arena_bytes / KIB:,.0f} KiB with: "
          f"{checked.difference or 'the same bits in every tensor'}")  # fmt: skip
    if not checked.agrees:
        faults.append("planning changes BERT's numbers")

    title("6. The picture: time from left to right, offsets from bottom to top")
    for name, ctx in plans.items():
        path = Path(sys.argv[1] if len(sys.argv) > 1 else "memory.png")
        path = path.with_name(f"{path.stem}_{name.lower()}{path.suffix}")
        if len(sys.argv) < 2:
            print(f"give a file name to draw {path.name}")
            continue
        try:
            draw_memory(Report.from_log(ctx.log, {}, name), path)
            print(f"wrote {path}")
        except InvalidInput as fault:
            print(fault)

    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
