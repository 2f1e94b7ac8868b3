"""R.nn.attention: one kernel, its masks, and three kernels where the target has none for it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import relaxc
from relax_passes.analysis.independent_axis import padding_obstacle
from relax_passes.lowering.attention import lower_attentions
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import context, run
from tests.tir_schedules.attention_reference import reference
from tir_schedules import Machine

R = relax.op
CUDA, OLD_CUDA = (
    tvm.target.Target({"kind": "cuda", "arch": arch, "max_shared_memory_per_block": 49152})
    for arch in ("sm_80", "sm_75")
)


def module(*shapes: tuple, dtype: str = "float32", **attributes: object) -> tvm.IRModule:
    """Return a module of one attention: q, k, v and perhaps a bias; more attributes."""
    builder = relax.BlockBuilder()
    names = ("q", "k", "v", "bias")
    params = [
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape in zip(names, shapes, strict=False)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(R.nn.attention(*params, **attributes))
        builder.emit_func_output(out)
    return builder.get()


def values(*shapes: tuple) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


Q, K = (2, 9, 4, 16), (2, 13, 4, 16)
ROW, COLUMN = np.arange(9)[:, None], np.arange(13)[None, :]


@pytest.mark.parametrize(
    ("attributes", "shown"),
    [
        ({}, True),
        ({"causal_mask": "TopLeft"}, COLUMN <= ROW),
        ({"causal_mask": "BottomRight"}, COLUMN <= ROW + 4),
        (
            {"causal_mask": "BottomRight", "window_size": 3},
            (COLUMN <= ROW + 4) & (COLUMN > ROW + 1),
        ),
        ({"window_size": 2}, np.abs(COLUMN - ROW) < 2),
    ],
)
def test_masks(attributes: dict[str, object], shown: np.ndarray | bool) -> None:
    model = relaxc.compile(module(Q, K, K, **attributes))
    assert [kernel["rule"] for kernel in model.report.kernels] == ["attention"]
    arrays = values(Q, K, K)
    want = reference(*arrays, shown=shown)
    np.testing.assert_allclose(model(*arrays), want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("bias", [(2, 4, 9, 13), (1, 1, 1, 13), (2, 1, 1, 13), (1, 4, 9, 13)])
def test_bias_and_scale(bias: tuple[int, ...]) -> None:
    scale = tirx.FloatImm("float32", 0.5)
    model = relaxc.compile(module(Q, K, K, bias, scale=scale))
    arrays = values(Q, K, K, bias)
    want = reference(*arrays[:3], rescore=lambda s: s + arrays[3], scale=0.5)
    np.testing.assert_allclose(model(*arrays), want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_shared_keys_and_symbolic_lengths() -> None:
    b, n = tirx.Var("b", "int64"), tirx.Var("n", "int64")
    grouped = (b, n, 2, 16)
    model = relaxc.compile(module((b, n, 8, 16), grouped, grouped, causal_mask="TopLeft"))
    assert [kernel["rule"] for kernel in model.report.kernels] == ["attention"]
    for batch, length in ((1, 1), (2, 33), (1, 130)):
        arrays = values((batch, length, 8, 16), *[(batch, length, 2, 16)] * 2)
        want = reference(*arrays, shown=np.tril(np.ones((length, length), bool)))
        np.testing.assert_allclose(model(*arrays), want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str) -> None:
    import ml_dtypes

    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    model = relaxc.compile(module(Q, K, K, dtype=dtype))
    arrays = [array.astype(kind) for array in values(Q, K, K)]
    want = reference(*arrays)
    got = np.asarray(model(*arrays)).astype("float64")
    assert np.abs(got - want).max() <= 2 * float(ml_dtypes.finfo(kind).eps) * np.abs(want).max()


def test_float64_takes_the_plain_stages() -> None:
    model = relaxc.compile(module(Q, K, K, dtype="float64"))
    arrays = [array.astype("float64") for array in values(Q, K, K)]
    np.testing.assert_allclose(model(*arrays), reference(*arrays), rtol=1e-12, atol=1e-13)


def test_views_around_it_are_no_kernels() -> None:
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType((1, 20, 64), "float32")) for name in "qkv"]
    with builder.function("main", params):
        with builder.dataflow():
            heads = [builder.emit(R.reshape(p, (1, 20, 4, 16))) for p in params]
            made = builder.emit(R.nn.attention(*heads))
            out = builder.emit_output(R.reshape(made, (1, 20, 64)))
        builder.emit_func_output(out)
    model = relaxc.compile(builder.get())
    assert [kernel["rule"] for kernel in model.report.kernels] == ["attention"]
    arrays = values(*[(1, 20, 64)] * 3)
    want = reference(*(array.reshape(1, 20, 4, 16) for array in arrays)).reshape(1, 20, 64)
    np.testing.assert_allclose(model(*arrays), want, rtol=0, atol=2e-6 * np.abs(want).max())


def cuda_rules(target: tvm.target.Target) -> tuple[dict[str, str], PassContext]:
    shape = (1, 128, 12, 64)
    ctx = PassContext(target, Machine.from_target(target))
    default_pipeline().until("schedule").run(
        module(shape, shape, shape, (1, 1, 1, 128), causal_mask="TopLeft"), ctx
    )
    return {kernel["name"]: kernel["rule"] for kernel in ctx.log.metrics["kernels"]}, ctx


def test_cuda_gets_one_kernel() -> None:
    assert cuda_rules(CUDA)[0] == {"attention": "attention"}


def test_old_cuda_gets_scores_softmax_and_sums() -> None:
    rules, ctx = cuda_rules(OLD_CUDA)
    assert rules == {
        "attention_scores": "contraction",
        "attention_softmax": "register_rows",
        "attention_values": "contraction",
    }
    assert any("sm_80" in reason for _, _, reason in ctx.log.declined)


def test_the_three_kernels_compute_attention() -> None:
    ctx = PassContext(OLD_CUDA, Machine.from_target(OLD_CUDA))
    lowered, count = lower_attentions(module(Q, K, K, (2, 1, 1, 13), causal_mask="TopLeft"), ctx)
    assert count == 1
    arrays = values(Q, K, K, (2, 1, 1, 13))
    want = reference(*arrays[:3], rescore=lambda s: s + arrays[3], shown=COLUMN <= ROW)
    np.testing.assert_allclose(run(lowered, *arrays), want, rtol=0, atol=1e-5)


def test_a_cache_with_heads_before_tokens_is_read_as_it_lies() -> None:
    builder = relax.BlockBuilder()
    shapes = [(2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 24)]
    params = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip("qkv", shapes, strict=True)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            turned = [builder.emit(R.permute_dims(p, [0, 2, 1, 3])) for p in params]
            out = builder.emit_output(R.nn.attention(*turned, causal_mask="BottomRight"))
        builder.emit_func_output(out)
    model = relaxc.compile(builder.get())
    assert [kernel["rule"] for kernel in model.report.kernels] == ["attention"]
    arrays = values(*shapes)
    want = reference(*(a.transpose(0, 2, 1, 3) for a in arrays), shown=COLUMN <= ROW + 4)
    np.testing.assert_allclose(model(*arrays), want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_its_batch_is_an_independent_axis() -> None:
    b = tirx.Var("b", "int64")
    shape = (b, 9, 4, 16)
    mod = module(shape, shape, shape, (1, 4, 9, 9), causal_mask="TopLeft", window_size=3)
    assert padding_obstacle(mod, "b", context()) is None
    n = tirx.Var("n", "int64")
    mod = module(*[(1, n, 4, 16)] * 3)
    assert "n" in str(padding_obstacle(mod, "n", context()))
