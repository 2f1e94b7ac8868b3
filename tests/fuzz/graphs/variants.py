"""Legal ways to run the pipeline: passes off, in another order, twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import tvm

from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pipeline import REQUIRED, Pipeline, default_pipeline

# Within these phases every pass takes what every other leaves. The later phases lower the graph
# step by step, so their passes have one order.
FREE_PHASES = ("canonicalize", "raise", "rewrite")
_QUICK_SHARE = {"passes": 0.7, "onnx": 0.7, "memory": 0.9}


@dataclass(frozen=True)
class Variant:
    """A way to run the pipeline.

    Args:
        off: Names of the passes that are switched off.
        shuffle: Seed of the order within the free phases, None for the usual one.
        twice: Whether each pass runs twice, where the second run must change nothing.
        unoptimized: Whether the unoptimized module is run too.
        strict: Whether the precision is "strict".
        quick: Whether kernels are compiled without LLVM's optimizations and argument checks,
            which costs less. The loops that are built, and what is planned, are the same.
    """

    off: tuple[str, ...] = ()
    shuffle: int | None = None
    twice: bool = False
    unoptimized: bool = False
    strict: bool = False
    quick: bool = False

    def apply(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline that runs this way."""
        phases = dict(pipeline.without(*self.off).phases)
        if self.shuffle is not None:
            for phase in FREE_PHASES:
                order = list(phases[phase])
                random.Random(self.shuffle).shuffle(order)
                phases[phase] = tuple(order)
        if self.twice:
            phases = {name: tuple(map(run_twice, passes)) for name, passes in phases.items()}
        return Pipeline(phases)


def optional_passes() -> list[str]:
    """Return the passes that can be switched off and leave the numbers as they are."""
    return sorted({p.name for p in default_pipeline().passes()} - REQUIRED - {"wrap_integers"})


def choose_variant(seed: str, mode: str) -> Variant:
    """Return the variant that a seed names; a third of them are the default pipeline."""
    strict = mode != "memory" and random.Random(f"{seed}/strict").random() < 0.05
    quick = random.Random(f"{seed}/quick").random() < _QUICK_SHARE[mode]
    return replace(_choose_passes(seed, mode), strict=strict, quick=quick)


def _choose_passes(seed: str, mode: str) -> Variant:
    rng = random.Random(seed)
    names = optional_passes()
    way = rng.random()
    unoptimized = mode == "passes" and rng.random() < 0.1
    if mode == "memory" and rng.random() < 0.8:
        # Every operator a kernel of its own: more tensors to place, and kernels that graphs share.
        return Variant(off=("fuse_operators", "fuse_siblings"))
    if way < 0.35:
        return Variant(unoptimized=unoptimized)
    if way < 0.7:
        off = rng.sample(names, rng.choice([1, 1, 2, len(names) // 2, len(names)]))
        return Variant(off=tuple(sorted(off)), unoptimized=unoptimized)
    if way < 0.85:
        return Variant(shuffle=rng.randrange(1 << 20), unoptimized=unoptimized)
    return Variant(twice=True, unoptimized=unoptimized)


class NotIdempotent(AssertionError):
    """The second run of a pass changed what the first had left."""


def run_twice(graph_pass: GraphPass) -> GraphPass:
    """Return a pass that runs twice and checks that the second run changes nothing."""

    def run(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        mod, changed = graph_pass(mod, ctx)
        again, more = graph_pass(mod, ctx)
        if more:
            raise NotIdempotent(f"{graph_pass.name} changes its own result")
        return again, changed

    return GraphPass(graph_pass.name, graph_pass.phase, run, graph_pass.summary)
