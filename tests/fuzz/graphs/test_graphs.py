"""A sample of random graphs, and the fuzzer's own behaviour."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from relax_passes.pass_base import GraphPass
from relax_passes.pipeline import default_pipeline
from tests.fuzz.graphs import run_case as judge
from tests.fuzz.graphs.__main__ import Run, outcome_of, text_of
from tests.fuzz.graphs.emit_onnx import emit_onnx
from tests.fuzz.graphs.emit_relax import emit_relax
from tests.fuzz.graphs.evaluate import difference, evaluate, input_arrays, symbol_values
from tests.fuzz.graphs.generate import generate
from tests.fuzz.graphs.operators.products import window_size
from tests.fuzz.graphs.recipe import INPUT, Recipe, Step, TensorType, without_dead_steps
from tests.fuzz.graphs.run_case import Job, Outcome, run_case
from tests.fuzz.graphs.shrink import candidates, shrink
from tests.fuzz.graphs.sizes import Affine
from tests.fuzz.graphs.variants import NotIdempotent, Variant, choose_variant, run_twice
from tests.relax_passes.pass_checks import context
from tests.worker_pool import Died

SAMPLE = {"passes": 60, "onnx": 40, "memory": 150}
LARGEST = {"passes": 8, "onnx": 8, "memory": 8}


def test_a_sample_of_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    """`make fuzz` runs 3,000 graphs against oracles and 10,000 with planning on and off."""
    jobs = [Job(m, "ci", i, LARGEST[m]) for m, count in SAMPLE.items() for i in range(count)]
    ends = Run(min(2, os.cpu_count() or 1), seconds=300, trials=40).run(jobs)
    assert ends == {"equal": sum(SAMPLE.values())}, capsys.readouterr().out


# The generator ------------------------------------------------------------------------------------


def test_a_seed_names_a_graph_for_good() -> None:
    graphs = [generate(f"s/{i}") for i in range(40)]
    assert graphs == [generate(f"s/{i}") for i in range(40)]
    assert len(set(map(repr, graphs))) == 40
    assert choose_variant("s", "passes") == choose_variant("s", "passes")


def test_graphs_hold_what_passes_can_get_wrong() -> None:
    graphs = [generate(f"breadth/{i}") for i in range(400)]
    kinds = {s.kind for g in graphs for s in g.steps}
    assert kinds >= {
        "reshape", "expand_dims", "squeeze", "slice", "permute_dims", "tuple", "item", "if", "call",
        "match_cast", "conv", "conv_transpose", "matmul", "pool", "sum", "softmax", "layer_norm",
        "batch_norm", "concat", "split", "pad", "take", "where", "cast",
    }  # fmt: skip
    tensors = [s.type for g in graphs for s in g.steps if isinstance(s.type, TensorType)]
    dtypes = {t.dtype for t in tensors}
    assert dtypes >= {"float16", "float32", "float64", "int8", "int32", "int64", "bool"}
    assert any(0 in t.shape for t in tensors)
    assert any(g.symbols for g in graphs) and any(not g.dataflow for g in graphs)
    assert any(len(set(g.outputs)) < len(g.outputs) for g in graphs)
    assert any(g.steps[o].kind == INPUT for g in graphs for o in g.outputs)
    assert all(g.size() >= 1 for g in graphs)


@pytest.mark.parametrize("number", range(20))
def test_numpy_and_the_type_rules_agree(number: int) -> None:
    recipe = generate(f"types/{number}")
    values = symbol_values(recipe, 3)
    results, _ = evaluate(recipe, input_arrays(recipe, values, 0), values)
    assert all(np.isfinite(r).all() for r in results if r.dtype.kind == "f")
    emit_relax(recipe)  # raises where TVM deduces another type
    emit_onnx(generate(f"types/{number}", onnx=True))


def test_no_window_is_larger_than_its_image() -> None:
    attrs = {"stride": 1, "dilation": 2, "padding": 0}
    size = Affine("s", 1, 4)
    assert window_size(size, 3, attrs) == Affine("s")
    assert window_size(Affine("s", 1, 3), 3, attrs) is None  # s may be 1: 5 do not fit in 4
    assert window_size(Affine("s"), 3, {**attrs, "padding": 2}) == Affine("s")
    assert window_size(4, 3, attrs) is None and window_size(5, 3, attrs) == 1


# What it notices ----------------------------------------------------------------------------------


def _small() -> Recipe:
    """Return tanh(x) + x beside exp(x), of (2, 3)."""
    kind = TensorType((2, 3), "float32", -2.0, 2.0)
    steps = (
        Step(INPUT, (), {}, kind),
        Step("tanh", (0,), {}, kind),
        Step("add", (1, 0), {}, kind),
        Step("exp", (0,), {}, kind),
    )
    return Recipe(steps, (2, 3))


def _broken(monkeypatch: pytest.MonkeyPatch, run: object) -> None:
    """Put a pass into the pipeline of the judge."""
    wrong = GraphPass("wrong", "rewrite", run, "A planted fault.")  # type: ignore[arg-type]
    pipeline = default_pipeline()
    planted = pipeline.with_phase("raise", *pipeline.phases["raise"], wrong)
    monkeypatch.setattr(judge, "cached_pipeline", lambda: planted)


def _swap_exp(mod, ctx):
    """Compute sqrt(exp(x)) in the place of exp(x)."""
    recipe = _small()
    steps = (*recipe.steps, Step("sqrt", (3,), {}, recipe.steps[3].type))
    return emit_relax(replace(recipe, steps=steps, outputs=(2, 4))), True


def test_a_wrong_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("passes", "t", 0, recipe=_small(), variant=Variant())
    assert run_case(job) == Outcome("equal")
    _broken(monkeypatch, _swap_exp)
    outcome = run_case(job)
    assert outcome.word == "differs"
    assert "result 1" in outcome.detail and "unoptimized module: right" in outcome.detail


def test_a_pass_that_raises_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _broken(monkeypatch, lambda mod, ctx: 1 / 0)
    outcome = run_case(Job("passes", "t", 0, recipe=_small(), variant=Variant()))
    assert outcome.word == "raises" and "ZeroDivisionError" in outcome.detail


def test_a_pass_that_is_not_idempotent_is_noticed() -> None:
    forever = GraphPass("forever", "rewrite", lambda mod, ctx: (mod, True), "")
    with pytest.raises(NotIdempotent, match="forever"):
        run_twice(forever)(emit_relax(_small()), context())


def _die(job: Job) -> Outcome:
    if job.number == 1:
        os._exit(7)
    return Outcome("equal")


def test_a_process_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("tests.fuzz.graphs.__main__.run_case", _die)
    jobs = [Job("passes", "t", number, recipe=_small()) for number in range(3)]
    assert Run(1, seconds=60, trials=0).run(jobs) == {"equal": 2, "died": 1}
    assert "--first 1 --count 1" in capsys.readouterr().out


def test_a_difference_within_rounding_is_none() -> None:
    recipe = _small()
    inputs = input_arrays(recipe, {}, 0)
    wanted, allowed = evaluate(recipe, inputs, {})
    got = [w.astype("float32") for w in wanted]
    assert difference(got, wanted, allowed) == ""
    got[1] = got[1] * np.float32(1 + 1e-4)
    assert "result 1" in difference(got, wanted, allowed)
    assert "shape" in difference([got[0], got[1][0]], wanted, allowed)


class _Hanging:
    """A pool in which graphs of more than one operator never end; it notes the time they get."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome, self.limits = outcome, list[float]()

    def run(self, job: Job, seconds: float) -> Outcome | Died:
        self.limits.append(seconds)
        return self.outcome if job.graph().size() > 1 else Outcome("equal")


@pytest.mark.parametrize(
    ("outcome", "limit"), [(Died("no answer in 300 s"), 30.0), (Outcome("raises", "Fault"), 20.0)]
)
def test_candidates_that_hang_take_little_time(outcome: Outcome | Died, limit: float) -> None:
    """One has as long as the first run took, five times over; a tenth if that is the fault."""
    pool = _Hanging(outcome)
    job = Job("passes", "t", 0, recipe=_small())
    small, _ = Run(1, seconds=300, trials=9).smallest(pool, job, outcome_of(outcome), 9)
    assert small.graph().size() <= job.graph().size()
    assert len(pool.limits) > 1 and set(pool.limits[1:]) == {limit}


# Making a failing graph smaller -------------------------------------------------------------------


def test_a_failing_graph_becomes_small() -> None:
    """Of 20 operators that lead to a softmax, the softmax alone is left."""
    recipe = next(
        without_dead_steps(g)
        for g in (generate(f"shrink/{i}") for i in range(500))
        if g.size() > 12 and any(s.kind == "softmax" for s in without_dead_steps(g).steps)
    )

    def fails(candidate: Recipe) -> bool:
        return any(s.kind == "softmax" for s in candidate.steps)

    small = shrink(recipe, fails)
    assert fails(small) and small.size() == 1
    assert "R.nn.softmax" in text_of(Job("passes", "t", 0, recipe=small))


@pytest.mark.parametrize("number", range(10))
def test_smaller_graphs_are_legal(number: int) -> None:
    """But for sizes: a smaller graph may have lost the input that defines a symbol."""
    recipe = generate(f"legal/{number}", largest=10)
    if recipe.symbols:
        return
    for candidate in candidates(recipe):
        emit_relax(candidate)
