"""The pipeline as a list of steps, each of which can be off, and the stages they form.

With no step on only the required passes are left: every operator is a kernel of its own, scheduled
by the fallback rule, and no two tensors share bytes. Steps go on in the order in which the pipeline
takes them: the optional passes, then the schedule rules one by one, then what memory planning does.
So the first n steps, then only what is required, is a pipeline for each n, and two of them that
differ in one step differ in what that step does.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.target import Target

from relax_passes.pass_base import PHASES, GraphPass
from relax_passes.pipeline import REQUIRED, Pipeline
from tir_schedules import rules_of

STAGES = ("unoptimized", "graph passes", "fused", "scheduled", "full")
_SCHEDULE, _MEMORY = "schedule_kernels", "plan_memory"
_MEMORY_OPTIONS = ("reuse", "in_place")


@dataclass(frozen=True)
class Step:
    """Something that can be off: a pass (by its place), a schedule rule, or an option of memory."""

    kind: str  # "pass", "schedule rule", "memory option"
    name: str
    phase: str
    place: int = 0  # which pass of its phase it is, or belongs to

    @property
    def stage(self) -> str:
        """The stage it belongs to."""
        late = {"fuse": "fused", "schedule": "scheduled", "memory": "full"}
        return late.get(self.phase, "graph passes")

    def __str__(self) -> str:
        """Name it with its phase."""
        return f"{self.kind} {self.name!r} of phase {self.phase!r}"


def steps_of(pipeline: Pipeline, target: Target) -> list[Step]:
    """Return what can be off in `pipeline`, in the order in which it runs."""
    steps: list[Step] = []
    for phase, passes in pipeline.phases.items():
        for place, graph_pass in enumerate(passes):
            if graph_pass.name == _SCHEDULE:
                *rules, _ = [rule.name for rule in rules_of(target)]
                off = graph_pass.options.without_rules
                steps += [
                    Step("schedule rule", name, phase, place) for name in rules if name not in off
                ]
            elif graph_pass.name == _MEMORY:
                steps += [
                    Step("memory option", name, phase, place)
                    for name in _MEMORY_OPTIONS
                    if getattr(graph_pass.options, name)
                ]
            elif graph_pass.name not in REQUIRED:
                steps.append(Step("pass", graph_pass.name, phase, place))
    return steps


def stage_ends(steps: list[Step]) -> dict[str, int]:
    """Return for each stage the number of steps that are on at its end."""
    return {
        stage: sum(STAGES.index(step.stage) <= number for step in steps)
        for number, stage in enumerate(STAGES)
    }


def with_steps(pipeline: Pipeline, steps: list[Step], count: int) -> Pipeline:
    """Return `pipeline` with only the first `count` of its steps, and what is required."""
    on, off = set(steps[:count]), steps[count:]

    def configured(phase: str, place: int, graph_pass: GraphPass) -> GraphPass | None:
        rules = tuple(s.name for s in off if s.kind == "schedule rule" and s.phase == phase)
        options = {s.name: False for s in off if s.kind == "memory option" and s.phase == phase}
        if graph_pass.name == _SCHEDULE:
            return graph_pass.with_options(
                without_rules=(*graph_pass.options.without_rules, *rules)
            )
        if graph_pass.name == _MEMORY:
            return graph_pass.with_options(**options)
        kept = graph_pass.name in REQUIRED or Step("pass", graph_pass.name, phase, place) in on
        return graph_pass if kept else None

    phases = {}
    for phase, passes in pipeline.phases.items():
        made = [configured(phase, place, p) for place, p in enumerate(passes)]
        phases[phase] = tuple(p for p in made if p is not None)
    return Pipeline(phases)


def split_at(
    pipeline: Pipeline, step: Step, steps: list[Step], count: int
) -> tuple[list[GraphPass], Pipeline]:
    """Cut `with_steps(pipeline, steps, count)` where the graph shows what `step` does.

    That is right after a pass, and right before the kernels are scheduled or memory is planned.

    Returns:
        The passes before the cut, and the pipeline after it.
    """
    configured = with_steps(pipeline, steps, count)
    at = PHASES.index(step.phase)
    # Passes of the step's phase that stand at or before it and are on.
    before = sum(
        p.name in REQUIRED or Step("pass", p.name, step.phase, place) in steps[:count]
        for place, p in enumerate(pipeline.phases[step.phase][: step.place + 1])
    )
    if step.kind != "pass":
        before = 0
    head: list[GraphPass] = []
    tail: dict[str, tuple[GraphPass, ...]] = {}
    for phase, passes in configured.phases.items():
        cut = before if phase == step.phase else len(passes) if PHASES.index(phase) < at else 0
        head += passes[:cut]
        tail[phase] = passes[cut:]
    return head, Pipeline(tail)
