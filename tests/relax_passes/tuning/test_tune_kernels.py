"""Quick tuning with a timer that says what a test wants: which answers count, and how they hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc, Var

from relax_passes.assign_layout import assign_layout
from relax_passes.lower_operators import lower_operators
from relax_passes.pass_base import PassContext
from relax_passes.schedule_kernels import schedule_kernels
from relax_passes.tune_kernels import tune_kernels
from relax_passes.tuning import AnswerStore, TuningSession
from relax_passes.tuning.measure_kernels import measure_kernels
from tests.relax_passes.pass_checks import context, module, run, weights

IMAGE = (1, 32, 28, 28)


def _convolution(shape: Sequence[object] = IMAGE, kernel: int = 3) -> tvm.IRModule:
    weight = weights(32, 32, kernel, kernel)
    return module(
        tuple(shape),
        lambda bb, x: relax.op.nn.relu(bb.emit(relax.op.nn.conv2d(x, weight, padding=kernel // 2))),
    )


class Timer:
    """Says that of several kernels the one at `fastest` takes `share` of the first's time.

    Each of `shares` is for one call; the last one is for all that follow.
    """

    def __init__(self, fastest: int, *shares: float) -> None:
        self.fastest, self.shares, self.calls = fastest, list(shares), 0

    def __call__(self, kernels: Sequence[PrimFunc], _: Target) -> list[list[float]]:
        share = self.shares[min(self.calls, len(self.shares) - 1)]
        self.calls += 1
        at = min(self.fastest, len(kernels) - 1)
        return [[share if i == at else 1.0 + i / 100] * 3 for i in range(len(kernels))]


def _no_timer(*_: object) -> list[list[float]]:
    raise AssertionError("nothing is to be measured")


def _tuned(mod: tvm.IRModule, session: TuningSession) -> tuple[tvm.IRModule, PassContext]:
    """Return a module, lowered and scheduled with what a session answers, and its context."""
    ctx = dataclasses.replace(context(), tuning=session)
    mod = assign_layout(mod, ctx)[0]
    same, modified = tune_kernels(mod, ctx)
    assert same.same_as(mod) and not modified
    return schedule_kernels(lower_operators(mod, ctx)[0], ctx)[0], ctx


def _kernels(mod: tvm.IRModule) -> list[str]:
    return [str(v.name_hint) for v in mod.get_global_vars() if "conv2d" in str(v.name_hint)]


def test_what_is_faster_twice_is_taken(tmp_path: Path) -> None:
    """The second option of a 3x3 convolution is the direct sum, where Winograd's is the first."""
    session = TuningSession(AnswerStore(tmp_path, "test"), measure=Timer(1, 0.5))
    tuned, ctx = _tuned(_convolution(), session)
    assert _kernels(tuned) == ["conv2d"]
    assert session.changed[0]["answer"] == "None"
    assert ctx.log.metrics["tuning"]["saved_seconds"] == pytest.approx(
        sum(change["saved_seconds"] for change in session.changed)
    )
    assert any("less a run" in what for name, what in ctx.log.fired if name == "tune_kernels")
    image = np.random.default_rng(1).standard_normal(IMAGE).astype("float32")
    want = run(_convolution(), image)
    assert np.abs(run(tuned, image) - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("shares", [(0.97,), (0.5, 0.97), (1.0,)])
def test_noise_changes_nothing(tmp_path: Path, shares: tuple[float, ...]) -> None:
    """Neither a small lead nor one that a second measurement does not find again."""
    timer = Timer(1, *(share for _ in range(20) for share in shares))
    session = TuningSession(AnswerStore(tmp_path, "test"), measure=timer)
    tuned, ctx = _tuned(_convolution(), session)
    assert session.measured > 0 and not session.changed
    ctx.tuning = None
    untuned = _tuned(_convolution(), TuningSession(AnswerStore(tmp_path, "none"), seconds=0))[0]
    tvm.ir.assert_structural_equal(tuned, untuned)


def test_stored_answers_give_the_same_kernels_without_a_measurement(tmp_path: Path) -> None:
    first = TuningSession(AnswerStore(tmp_path, "test"), measure=Timer(1, 0.5))
    tuned, _ = _tuned(_convolution(), first)
    second = TuningSession(AnswerStore(tmp_path, "test"), measure=_no_timer)
    again, _ = _tuned(_convolution(), second)
    tvm.ir.assert_structural_equal(tuned, again)
    assert (second.from_store, second.measured) == (first.measured, 0)


def test_an_unreadable_store_is_reported(tmp_path: Path) -> None:
    path = AnswerStore(tmp_path, "test").path
    path.write_text("{")
    session = TuningSession(AnswerStore(tmp_path, "test"), measure=Timer(0, 1.0))
    _, ctx = _tuned(_convolution(), session)
    assert [subject for name, subject, _ in ctx.log.declined if name == "tune_kernels"]
    assert not AnswerStore(tmp_path, "test").fault


def test_when_time_is_up_the_cost_model_decides(tmp_path: Path) -> None:
    ticks = iter(range(0, 10_000, 20))
    session = TuningSession(
        AnswerStore(tmp_path, "test"),
        seconds=30,
        measure=Timer(0, 1.0),
        clock=lambda: float(next(ticks)),
    )
    mod = module(IMAGE, lambda bb, x: _two_layers(bb, x))
    _tuned(mod, session)
    assert session.measured == 1 and session.left_out >= 2


def _two_layers(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    inner = bb.emit(relax.op.nn.conv2d(x, weights(32, 32, 3, 3), padding=1))
    return relax.op.nn.conv2d(inner, weights(64, 32, 1, 1))


def test_symbolic_sizes_are_not_measured(tmp_path: Path) -> None:
    session = TuningSession(AnswerStore(tmp_path, "test"), measure=_no_timer)
    _tuned(_convolution((1, 32, Var("h", "int64"), 28)), session)
    assert not session.measured


@pytest.mark.parametrize("layer", ["depthwise", "product"])
def test_other_kernels_are_measured_too(tmp_path: Path, layer: str) -> None:
    if layer == "depthwise":
        weight = weights(64, 1, 3, 3)
        mod = module(
            (1, 64, 56, 56), lambda bb, x: relax.op.nn.conv2d(x, weight, padding=1, groups=64)
        )
    else:
        mod = module((512, 256), lambda bb, x: relax.op.matmul(x, weights(256, 64)))
    session = TuningSession(AnswerStore(tmp_path, "test"), measure=Timer(1, 0.5))
    _tuned(mod, session)
    assert [change["default"] != change["answer"] for change in session.changed] == [True]


def test_without_a_session_nothing_is_measured() -> None:
    ctx = context()
    mod = assign_layout(_convolution(), ctx)[0]
    assert tune_kernels(mod, ctx)[0].same_as(mod) and not ctx.machine.answers


def test_kernels_are_timed_in_rounds(tmp_path: Path) -> None:
    seen: list[list[list[float]]] = []

    def measure(kernels: Sequence[PrimFunc], target: Target) -> list[list[float]]:
        samples = measure_kernels(kernels, target)
        seen.append(samples)
        return samples

    session = TuningSession(AnswerStore(tmp_path, "test"), measure=measure)
    _tuned(_convolution((1, 32, 14, 14), kernel=1), session)
    assert seen and all(len({len(s) for s in samples}) == 1 for samples in seen)
    assert all(second > 0 for samples in seen for kernel in samples for second in kernel)
