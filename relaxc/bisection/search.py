"""Find the first stage whose numbers differ, and in it the step that made them differ.

The stages run in order until one is off; between it and the last good one the step is found by
halves, as `git bisect` finds a commit: the first n steps are good, the first m are not, and the
middle decides. A configuration that does not run is passed over where the whole pipeline does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax_passes.pipeline import Pipeline, default_pipeline
from relaxc.bisection.intermediates import expose_intermediates
from relaxc.bisection.reference import references
from relaxc.bisection.steps import STAGES, Step, split_at, stage_ends, steps_of, with_steps
from relaxc.bisection.trial import Judge, Trial
from relaxc.check import TOLERANCE, OutputError, relative_error
from relaxc.errors import InvalidInput

IMPORT = "import"
Observer = Callable[[str, Trial], None]


@dataclass
class Bisection:
    """What was found.

    `trials` are all configurations that ran, the stages first. If `stage` is empty all stages
    agree. `suspects` holds the one step that made the numbers differ; several where those between
    do not run; none where the import, or what every pipeline needs, is off already. `tensor` is the
    first intermediate result that differs, None if it cannot be named.
    """

    reference: str
    notes: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    stage: str = ""
    suspects: tuple[Step, ...] = ()
    tensor: OutputError | None = None
    worst: OutputError | None = None
    fault: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every stage that ran gave the reference's numbers."""
        return not self.stage

    def __str__(self) -> str:
        """Say what was found in a few lines."""
        if self.agrees:
            return f"all stages agree with {self.reference}"
        lines = [f"the first stage that differs from {self.reference} is {self.stage!r}"]
        lines += [f"found: {step}" for step in self.suspects]
        if len(self.suspects) > 1:
            lines.insert(1, "one of these, between which no configuration runs:")
        if not self.suspects:
            lines.append(_EARLY[self.stage])
        if self.fault:
            lines.append(f"it fails: {self.fault}")
        if self.worst is not None:
            lines.append(f"worst output: {_shown(self.worst)}")
        if self.tensor is not None:
            lines.append(f"first tensor that differs: {_shown(self.tensor)}")
        elif self.worst is not None and self.suspects:
            lines.append("no intermediate tensor differs once all of them are kept")
        return "\n".join(lines)


_EARLY = {
    IMPORT: "no pass has run: the importer, or TVM's own build, is off",
    STAGES[0]: "no optional pass has run: lowering, the fallback rule or the build is off",
}


def bisect(
    source: Any,
    example_inputs: Any = None,
    *,
    feeds: Mapping[str, np.ndarray] | None = None,
    target: Any = "llvm",
    dynamic_shapes: Any = None,
    threads: int | None = None,
    passes: Pipeline | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    observe: Observer | None = None,
) -> Bisection:
    """Find the pass, schedule rule or memory option that changes a model's numbers.

    Args:
        source: What `relaxc.compile` takes.
        example_inputs: Inputs to trace a `torch.nn.Module` with.
        feeds: Inputs by name; seeded random ones by default.
        target: Where it runs; this machine must have the device.
        dynamic_shapes: As for `relaxc.compile`, without lists of sizes.
        threads: Threads to schedule for and to run with.
        passes: The pipeline to search; the default one by default.
        tolerance: Largest error of an output, relative to its largest reference value.
        seed: Seed of the random inputs.
        dims: Sizes of symbolic dimensions for the random inputs, by name.
        observe: Called as `observe(stage, trial)` after each trial.

    Raises:
        RelaxcError: If the model cannot be imported, or nothing can run it for reference.
    """
    from relaxc.compiler import import_source
    from relaxc.random_inputs import random_inputs
    from relaxc.targets import resolve_target
    from relaxc.thread_pool import available_cores

    count = threads or available_cores()
    imported = import_source(source, example_inputs, dynamic_shapes)
    values = dict(feeds) if feeds is not None else None
    if values is None:
        values = random_inputs(imported.inputs, seed=seed, dims=dims)
    names = [spec.name for spec in imported.outputs]
    judge = Judge(values, names, resolve_target(target, count), count)
    search = _Search(imported.module, judge, passes or default_pipeline(), tolerance, observe)
    return search.run(source)


class _Search:
    def __init__(
        self,
        module: Any,
        judge: Judge,
        pipeline: Pipeline,
        tolerance: float,
        observe: Observer | None,
    ) -> None:
        self.module, self.judge, self.pipeline = module, judge, pipeline
        self.tolerance, self.observe = tolerance, observe
        self.steps = steps_of(pipeline, judge.target)
        self.found = Bisection("")
        self._known: dict[int, Trial] = {}

    def run(self, source: Any) -> Bisection:
        found = self.found
        found.reference, self.judge.expected = self._reference(source)
        plain = self._record(
            IMPORT, self.judge.try_out(IMPORT, lambda: self.judge.run_plainly(self.module))
        )
        if self._bad(plain):
            found.stage, found.worst = IMPORT, plain.worst
            return found
        # Where nothing on the way runs, the import stands for the start: it is not off.
        good, bad, bad_stage = 0, 0, ""
        for stage, count in stage_ends(self.steps).items():
            trial = self._trial(count, stage)
            if self._bad(trial):
                bad, bad_stage = count, stage
                break
            if not trial.fault:
                good = count
        if bad_stage:
            found.stage = bad_stage
            self._narrow(good, bad, self._bad, lambda trial: bool(trial.fault))
        elif (last := self._trial(len(self.steps), STAGES[-1])).fault:
            # Nothing is off but the whole does not run: find what it fails of.
            found.fault = last.fault
            self._narrow(good, len(self.steps), lambda t: bool(t.fault), lambda t: False)
            found.stage = found.suspects[-1].stage if found.suspects else STAGES[0]
            found.worst = None
        return found

    def _narrow(
        self,
        good: int,
        bad: int,
        is_bad: Callable[[Trial], bool],
        is_unknown: Callable[[Trial], bool],
    ) -> None:
        """Halve (good, bad] until one step is left, or only what does not run."""
        while bad - good > 1:
            middle = (good + bad) // 2
            nearest = sorted(range(good + 1, bad), key=lambda n: abs(n - middle))
            tried = next((n for n in nearest if not is_unknown(self._trial(n))), None)
            if tried is None:
                break
            if is_bad(self._trial(tried)):
                bad = tried
            else:
                good = tried
        trial = self._trial(bad)
        self.found.worst = None if trial.fault else trial.worst
        self.found.suspects = tuple(self.steps[good:bad])
        if len(self.found.suspects) == 1 and not trial.fault:
            self.found.stage = self.found.suspects[0].stage
            self.found.tensor = self._first_tensor(good, bad)

    def _trial(self, count: int, stage: str = "") -> Trial:
        """Return the trial of the first `count` steps, run once."""
        if count not in self._known:
            last = str(self.steps[count - 1]) if count else "no step"
            pipeline = with_steps(self.pipeline, self.steps, count)
            trial = self.judge.try_out(
                stage or f"up to {last}", lambda: self.judge.run(self.module, pipeline)
            )
            self._known[count] = self._record(stage, trial)
        return self._known[count]

    def _record(self, stage: str, trial: Trial) -> Trial:
        self.found.trials.append(trial)
        if self.observe is not None:
            self.observe(stage, trial)
        return trial

    def _bad(self, trial: Trial) -> bool:
        return not trial.fault and not trial.worst.within(self.tolerance)

    def _reference(self, source: Any) -> tuple[str, list[np.ndarray]]:
        for name, make in references(source).items():
            try:
                return name, make()(self.judge.feeds)
            except Exception as fault:  # not installed, or it refuses the model: ask the next
                lines = str(fault).strip().splitlines() or [repr(fault)]
                self.found.notes.append(f"{name} cannot run it: {lines[0]}")
        try:
            return "TVM's own build", self.judge.run_plainly(self.module)
        except Exception as fault:
            self.found.notes.append(f"TVM's own build cannot run it: {fault}")
        raise InvalidInput("nothing can run the model: " + "; ".join(self.found.notes))

    def _first_tensor(self, good: int, bad: int) -> OutputError | None:
        """Run the graph with and without the step, all intermediates kept, and compare them."""
        step = self.steps[bad - 1]
        results: list[dict[str, np.ndarray]] = []
        for count in (good, bad):
            head, tail = split_at(self.pipeline, step, self.steps, count)
            try:
                exposed = expose_intermediates(self.judge.run_passes(self.module, head))
                if exposed is None:
                    return None
                values = self.judge.run(exposed.module, tail)
            except Exception as fault:  # naming the tensor is a service, not the verdict
                self.found.notes.append(f"intermediate tensors cannot be kept: {fault}")
                return None
            results.append(dict(zip(exposed.names, values, strict=True)))
        before, after = results
        for name, value in after.items():
            if name in before and before[name].shape == value.shape:
                error = relative_error(value, before[name], name)
                if not error.within(self.tolerance):
                    return error
        return None


def _shown(error: OutputError) -> str:
    note = f" ({error.note})" if error.note else ""
    return f"{error.name}, relative error {error.relative:.2e}{note}"
