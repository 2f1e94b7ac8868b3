"""`relaxc.compile`: every kind of source, options, faults turned into errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx.reference import ReferenceEvaluator
from tvm import relax

import relaxc
from relaxc.check import relative_error
from relaxc.errors import CompileError, InvalidInput, InvalidModel
from tests.relaxc.small_models import affine_relu, small_cnn, two_inputs


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


def expected(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return ReferenceEvaluator(model).run(None, feeds)


def assert_close(actual: np.ndarray, reference: np.ndarray) -> None:
    error = relative_error(actual, reference)
    assert error.within(1e-4), error


def test_a_convolutional_network_end_to_end(tmp_path: Path) -> None:
    proto, x = small_cnn(), random(1, 3, 32, 32)
    onnx.save(proto, tmp_path / "cnn.onnx")
    model = relaxc.compile(tmp_path / "cnn.onnx", dump_dir=tmp_path / "dumps")
    (reference,) = expected(proto, x=x)
    assert_close(model(x), reference)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert [(spec.name, spec.shape) for spec in model.outputs] == [("logits", (1, 10))]

    report = model.report
    assert report.kernels and all(k["rule"] for k in report.kernels)
    assert report.flops > 0 and report.bytes_moved > 0
    assert report.lower_bound_bytes is not None and report.arena_bytes is not None
    assert report.lower_bound_bytes <= report.arena_bytes < report.naive_bytes
    assert set(report.phase_seconds) >= {"import", "fuse", "schedule", "memory", "build"}
    # Folded into the weights: not a scale in the convolution's epilogue either.
    assert not any("batch_norm" in k["name"] or "multiply" in k["name"] for k in report.kernels)
    assert "call  conv2d" in (tmp_path / "dumps" / "10_build.txt").read_text()

    loaded = relaxc.load(model.save(tmp_path / "cnn.so"))
    np.testing.assert_array_equal(loaded(x=x), model(x))
    assert loaded.report == report
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir())[0] == "00_import.py"


def test_proto_and_module_sources() -> None:
    proto, x = affine_relu(), random(2, 4)
    (reference,) = expected(proto, x=x)
    assert_close(relaxc.compile(proto)(x), reference)

    block = relax.BlockBuilder()
    v = relax.Var("v", relax.TensorType([tvm.tirx.Var("n", "int64"), 4], "float32"))
    with block.function("main", [v]):
        with block.dataflow():
            out = block.emit_output(relax.op.add(v, v))
        block.emit_func_output(out)
    model = relaxc.compile(block.get())
    assert model.inputs[0].shape == ("n", 4)
    np.testing.assert_array_equal(model(x), x + x)


def test_symbolic_dimensions_by_name() -> None:
    model = relaxc.compile(two_inputs())
    assert model.inputs[0].shape == ("batch", 4)
    for batch in (1, 7):
        total, scaled = model(random(batch, 4), random(batch, 4))
        np.testing.assert_array_equal(total, random(batch, 4) * 2)
        np.testing.assert_array_equal(scaled, random(batch, 4) ** 2)
    with pytest.raises(InvalidInput, match="batch is 2 in 'a'"):
        model(random(2, 4), random(3, 4))


def test_nan_only_data_gives_nan() -> None:
    model = relaxc.compile(affine_relu())
    assert np.isnan(model(np.full((2, 4), np.nan, "float32"))).all()


def test_thread_counts_give_the_same_numbers() -> None:
    proto, x = small_cnn(), random(1, 3, 32, 32)
    one, two = (relaxc.compile(proto, threads=n) for n in (1, 2))
    assert (one.threads, two.threads) == (1, 2)
    assert_close(one(x), two(x))


def test_progress_names_the_phases() -> None:
    seen: list[tuple[str, int, int]] = []
    relaxc.compile(affine_relu(), progress=lambda *call: seen.append(call))
    names = [name for name, _, _ in seen]
    assert names[0] == "canonicalize" and names[-2:] == ["memory", "build"]
    assert [index for _, index, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, _, total in seen} == {len(seen)}


def test_a_faulty_pass_is_a_compile_error_that_names_its_phase() -> None:
    from relax_passes.pass_base import GraphPass
    from relax_passes.pipeline import default_pipeline

    def explode(mod: object, ctx: object) -> tuple[object, bool]:
        raise ZeroDivisionError("one over nothing")

    def diagnose(mod: object, ctx: object) -> tuple[object, bool]:
        tvm.script.from_source("@T.prim_func\ndef f(:\n")
        return mod, False

    for run in (explode, diagnose):
        broken = GraphPass("broken", "rewrite", run, "")
        pipeline = default_pipeline().with_phase("rewrite", broken)
        with pytest.raises(CompileError, match="'rewrite' failed") as caught:
            relaxc.compile(affine_relu(), passes=pipeline)
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("source", [42, None, object(), b"\x08\x0a"])
def test_sources_of_no_supported_kind(source: object) -> None:
    with pytest.raises(InvalidInput, match="expected a path"):
        relaxc.compile(source)


def test_a_module_without_main() -> None:
    with pytest.raises(InvalidModel):
        relaxc.compile(tvm.IRModule())


@pytest.mark.parametrize(
    "options",
    [{"precision": "float8"}, {"threads": 0}, {"target": "abacus"}, {"target": {"kind": "abacus"}}],
)
def test_options_that_do_not_fit(options: dict) -> None:
    with pytest.raises(InvalidInput):
        relaxc.compile(affine_relu(), **options)


def test_strict_precision_regroups_nothing() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.multiply(x, relax.const(np.float32(3))))
            out = builder.emit_output(relax.op.multiply(y, relax.const(np.float32(0.1))))
        builder.emit_func_output(out)
    data = random(64)
    one_by_one, together = (data * np.float32(3)) * np.float32(0.1), data * np.float32(0.3)
    assert not np.array_equal(one_by_one, together)
    strict = relaxc.compile(builder.get(), precision="strict")
    np.testing.assert_array_equal(strict(data), one_by_one)
    free = relaxc.compile(builder.get())
    np.testing.assert_array_equal(free(data), data * (np.float32(3) * np.float32(0.1)))
    assert ("apply_algebraic_rules", "multiply_constants: 1") in free.report.fired
    assert all(name != "apply_algebraic_rules" for name, _ in strict.report.fired)


def test_torch_modules() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    x = torch.from_numpy(random(2, 4))
    with torch.no_grad():
        reference = module(x)
    for source, examples in (
        (module, (x,)),
        (torch.export.export(module, (x,)), None),
    ):
        result = relaxc.compile(source, examples)(x)
        assert isinstance(result, torch.Tensor)
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-5)
