"""`relaxc check --bisect` names the planted bug: in a pass, a rule, memory, or the importer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

import relax_passes.memory.plan_memory
import tir_schedules.llvm.rules
from relax_passes.memory.plan_offsets import Plan
from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pipeline import REQUIRED, Pipeline, default_pipeline
from relaxc.bisection import bisect
from relaxc.bisection.intermediates import expose_intermediates
from relaxc.bisection.steps import STAGES, stage_ends, steps_of, with_steps
from relaxc.cli import main
from tests.relaxc.small_models import affine_relu, small_cnn
from tir_schedules.machine import Machine, host_target
from tir_schedules.rule import Decline, Rule

Rewrite = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def planted(name: str, phase: str, wanted: str, rewrite: Rewrite) -> GraphPass:
    """Return a pass that rewrites every call of an operator, wrongly."""

    @mutator
    class Bug(PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            return rewrite(self.builder_, call) if call.op.name == wanted else call

    def run(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        bug = Bug(mod)
        bug.builder_.update_func(mod.get_global_var("main"), bug.visit_expr(mod["main"]))
        return bug.builder_.get(), True

    return GraphPass(name, phase, run, "a planted bug")


def with_bug(bug: GraphPass, place: int) -> Pipeline:
    passes = list(default_pipeline().phases[bug.phase])
    passes.insert(place, bug)
    return default_pipeline().with_phase(bug.phase, *passes)


FLIP = planted(
    "flip_sign", "rewrite", "relax.nn.relu", lambda bb, call: relax.op.negative(bb.emit(call))
)
DROP = planted("drop_bias", "canonicalize", "relax.add", lambda bb, call: call.args[0])


def test_a_sound_pipeline_agrees_at_every_stage() -> None:
    found = bisect(affine_relu())
    assert found.agrees and found.reference == "ONNX Runtime"
    assert [trial.name for trial in found.trials] == ["import", *STAGES]
    assert all(trial.worst.within(1e-5) for trial in found.trials)
    assert "all stages agree" in str(found)


@pytest.mark.parametrize(
    ("bug", "place", "tensor"), [(FLIP, 2, "y"), (DROP, 3, "sum")], ids=["flip_sign", "drop_bias"]
)
def test_a_wrong_pass_is_named_with_its_tensor(bug: GraphPass, place: int, tensor: str) -> None:
    found = bisect(affine_relu(), passes=with_bug(bug, place))
    (step,) = found.suspects
    assert (step.name, step.phase, step.place) == (bug.name, bug.phase, place)
    assert found.stage == "graph passes" and not found.agrees
    assert found.tensor is not None and found.tensor.name == tensor
    assert found.worst is not None and found.worst.relative > 1e-2
    assert bug.name in str(found) and tensor in str(found)


def wrong_rule() -> Rule:
    """Return a rule that subtracts where a small kernel adds."""

    def apply(func: tirx.PrimFunc, machine: Machine) -> s_tir.Schedule:
        if "tanh" not in str(func):
            raise Decline("no hyperbolic tangent")
        body = tvm_ffi.structural_map(func.body, (tirx.Mul, lambda m: m.a + m.b))
        wrong = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
        return s_tir.Schedule(tvm.IRModule({"main": wrong}))

    return Rule("wrong_tanh", apply)


def scaled_tanh() -> tvm.IRModule:
    """y = tanh(exp(x) * x) @ x."""
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(builder.emit(relax.op.exp(x)), x), "scaled")
            bent = builder.emit(relax.op.tanh(scaled), "bent")
            y = builder.emit_output(relax.op.matmul(bent, x), "y")
        builder.emit_func_output(y)
    return builder.get()


def test_a_wrong_schedule_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tir_schedules.llvm.rules.llvm_rules()
    rules.insert(4, wrong_rule())
    monkeypatch.setattr(tir_schedules.llvm.rules, "llvm_rules", lambda: rules)
    found = bisect(scaled_tanh())
    (step,) = found.suspects
    assert (step.kind, step.name, step.phase) == ("schedule rule", "wrong_tanh", "schedule")
    assert found.stage == "scheduled" and found.reference == "TVM's own build"
    assert found.tensor is not None and found.tensor.name == "bent"


def test_a_wrong_arena_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that overlap while both are alive: the verifier refuses them, a fault as any."""
    plan_offsets = relax_passes.memory.plan_memory.plan_offsets

    def overlapping(buffers: list[tuple[int, int, int]], **options: str) -> Plan:
        plan = plan_offsets(buffers, **options)
        reused = any(lower >= 0 for lower, _, _ in buffers)
        return Plan(tuple(0 for _ in buffers), plan.peak, plan.peak) if reused else plan

    monkeypatch.setattr(relax_passes.memory.plan_memory, "plan_offsets", overlapping)
    found = bisect(small_cnn())
    (step,) = found.suspects
    assert (step.kind, step.name) == ("memory option", "reuse")
    assert found.stage == "full" and "Verification" in found.fault and found.worst is None


def test_a_pass_that_raises_is_named() -> None:
    def fail(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        raise KeyError("lost")

    found = bisect(affine_relu(), passes=with_bug(GraphPass("fail", "raise", fail, "x"), 1))
    (step,) = found.suspects
    assert step.name == "fail" and "lost" in found.fault and "it fails" in str(found)


def test_a_wrong_importer_is_told_from_a_wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from frontends.onnx.operators import activation

    monkeypatch.setattr(activation.R.nn, "relu", relax.op.negative)
    found = bisect(affine_relu())
    assert found.stage == "import" and not found.suspects and not found.agrees
    assert "the importer" in str(found)


def test_the_command_names_the_bug_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(affine_relu(), tmp_path / "affine.onnx")
    command = ["check", str(tmp_path / "affine.onnx"), "--bisect"]
    assert main([*command, "--quiet"]) == 0
    assert "all stages agree with ONNX Runtime" in capsys.readouterr().out
    buggy = with_bug(FLIP, 0)
    monkeypatch.setattr("relaxc.commands._pipeline", lambda args: buggy)
    assert main(command) == 1
    shown = capsys.readouterr()
    assert "pass 'flip_sign' of phase 'rewrite'" in shown.out and "unoptimized" in shown.err


def test_every_count_of_steps_is_a_pipeline_and_the_last_is_the_whole() -> None:
    pipeline, target = default_pipeline(), host_target(1)
    steps = steps_of(pipeline, target)
    ends = stage_ends(steps)
    assert list(ends) == list(STAGES) and list(ends.values()) == sorted(ends.values())
    assert ends["unoptimized"] == 0 and ends["full"] == len(steps)
    assert with_steps(pipeline, steps, len(steps)) == pipeline
    sizes = [len(with_steps(pipeline, steps, n).passes()) for n in range(len(steps) + 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] == sum(p.name in REQUIRED for p in pipeline.passes())


def test_intermediates_are_returned_by_name_and_the_numbers_stay() -> None:
    exposed = expose_intermediates(scaled_tanh())
    assert exposed is not None
    assert exposed.names[-3:] == ["scaled", "bent", "y"]
    relax.analysis.well_formed(exposed.module)
    x = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    values = relax.VirtualMachine(tvm.compile(exposed.module, target="llvm"), tvm.cpu())["main"](
        tvm.runtime.tensor(x)
    )
    np.testing.assert_allclose(values[1].numpy(), np.exp(x) * x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values[2].numpy(), np.tanh(np.exp(x) * x), rtol=1e-5, atol=1e-6)


def test_onnx_reference_stands_in_and_torch_modules_are_run_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxruntime.InferenceSession", None)
    found = bisect(affine_relu())
    assert found.agrees and found.reference == "onnx.reference" and found.notes
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    found = bisect(module, (torch.ones(2, 4),))
    assert found.agrees and found.reference == "PyTorch"
