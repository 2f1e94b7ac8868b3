"""The pipeline as a whole: order, switches, dumps, and numbers that no optional pass may change."""

from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from relax_passes.build import build_executable
from relax_passes.pass_base import PHASES, REGISTRY, PassContext, graph_pass
from relax_passes.pipeline import REQUIRED, default_pipeline
from relax_passes.verify import VerificationError
from tests.plain_build import build_plainly
from tir_schedules import Machine, host_target

RNG = np.random.default_rng(0)
OPTIONAL = sorted({p.name for p in default_pipeline().passes()} - REQUIRED)


def _constant(*shape: int) -> relax.Expr:
    return relax.const(RNG.standard_normal(shape).astype("float32") / 4)


def _small_cnn() -> tvm.IRModule:
    """A stem, batch norm, a residual block, two equal branches, a pool and a classifier."""
    x = relax.Var("x", relax.TensorType((1, 3, 12, 12), "float32"))
    bb = relax.BlockBuilder()
    op, nn = relax.op, relax.op.nn
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(nn.conv2d(x, _constant(16, 3, 3, 3), padding=1))
            mean, var = _constant(16), relax.const(np.full(16, 0.7, "float32"))
            y = bb.emit(
                nn.batch_norm(y, _constant(16), _constant(16), mean, var, 1, training=False)[0]
            )
            y = bb.emit(nn.relu(y))
            z = bb.emit(nn.conv2d(y, _constant(16, 16, 3, 3), padding=1))
            y = bb.emit(nn.relu(bb.emit(op.add(z, y))))
            twice = bb.emit(op.add(bb.emit(op.exp(y)), bb.emit(op.exp(y))))
            pooled = bb.emit(op.reshape(bb.emit(op.mean(twice, [2, 3])), (1, 16)))
            logits = bb.emit(op.add(bb.emit(op.matmul(pooled, _constant(16, 10))), _constant(10)))
            out = bb.emit_output(nn.softmax(logits))
        bb.emit_func_output(out)
    return bb.get()


CNN = _small_cnn()
INPUT = RNG.standard_normal((1, 3, 12, 12)).astype("float32")


def _context() -> PassContext:
    target = host_target(1)
    return PassContext(target, Machine.from_target(target))


def _result(mod: tvm.IRModule, ctx: PassContext) -> np.ndarray:
    executable = build_executable(mod, ctx)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(INPUT)).numpy()


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """Return the result of TVM's own build of the unoptimized module."""
    mod = relax.transform.DecomposeOpsForInference()(CNN)
    executable = build_plainly(mod)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(INPUT)).numpy()


def test_phases_come_in_the_documented_order() -> None:
    assert tuple(default_pipeline().phases) == PHASES


def test_default_pipeline_is_right_and_lean(expected: np.ndarray) -> None:
    ctx = _context()
    np.testing.assert_allclose(
        _result(default_pipeline().run(CNN, ctx), ctx), expected, rtol=1e-4, atol=1e-6
    )
    # edge transform, stem, residual convolution, pool with both exponentials or beside them,
    # classifier, softmax: nothing else is left as a kernel of its own
    assert ctx.log.metrics["kernel_count"] <= 8
    assert ctx.log.metrics["arena_bytes"] <= 1.05 * ctx.log.metrics["lower_bound_bytes"]
    assert set(ctx.log.metrics["pass_seconds"]) == {p.name for p in default_pipeline().passes()}


@pytest.fixture(scope="module")
def results() -> dict[tvm_ffi.StructuralKey, np.ndarray]:
    """Return the results of modules built so far: most passes change nothing in this network."""
    return {}


@pytest.mark.parametrize("name", OPTIONAL)
def test_any_optional_pass_can_be_off(
    name: str, expected: np.ndarray, results: dict[tvm_ffi.StructuralKey, np.ndarray]
) -> None:
    ctx = _context()
    mod = default_pipeline().without(name).run(CNN, ctx)
    key = tvm_ffi.StructuralKey(mod)
    if key not in results:
        results[key] = _result(mod, ctx)
    np.testing.assert_allclose(results[key], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_pass_its_phase_needs_cannot_be_off(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        default_pipeline().without(name)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no_such_pass"):
        default_pipeline().without("no_such_pass")
    with pytest.raises(ValueError, match="no_such_phase"):
        default_pipeline().with_phase("no_such_phase")
    with pytest.raises(ValueError, match="no_such_phase"):
        default_pipeline().until("no_such_phase")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="registered already"):
        graph_pass(name="plan_memory", phase="memory")(lambda mod, ctx: (mod, False))
    with pytest.raises(ValueError, match="unknown phase"):
        graph_pass(name="x", phase="no_such_phase")
    assert "x" not in REGISTRY


def test_each_phase_is_reported_and_dumped(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    default_pipeline().run(
        CNN, _context(), dump_dir=tmp_path, on_phase=lambda *call: seen.append(call)
    )
    assert [name for name, _, _ in seen] == list(PHASES)
    names = [p.name for p in sorted(tmp_path.iterdir())]
    assert names == [f"{i:02d}_{p}.py" for i, p in enumerate(["import", *PHASES])]
    for path in tmp_path.iterdir():
        assert "main" in {v.name_hint for v in tvm.script.from_source(path.read_text()).functions}


def test_a_broken_phase_is_named() -> None:
    with pytest.raises(VerificationError, match="schedule"):
        default_pipeline().with_phase("schedule").run(CNN, _context())
