"""Every operator becomes a call of a TIR function, views stay views, NaN propagates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.lower_operators import NotLowered, lower_operators
from tests.relax_passes.pass_checks import check, context, module, normal, operators, run, weights

R = relax.op
NAN = np.float32(np.nan)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: R.reshape(x, (4, 6)),
        lambda x: R.expand_dims(x, 1),
        lambda x: R.squeeze(x, [2]),
        lambda x: R.flatten(x),
    ],
)
def test_views_are_no_kernels(view: Callable[[relax.Expr], relax.Expr]) -> None:
    mod = module((2, 3, 1, 4), lambda bb, x: R.exp(bb.emit(view(x))))
    lowered = check(lower_operators, mod, normal(2, 3, 1, 4))
    assert operators(lowered) == {"reshape": 1, "call_tir": 1}


def test_a_view_with_a_symbolic_dimension() -> None:
    n = tvm.tirx.Var("n", "int64")
    mod = module((n, 2, 1), lambda bb, x: R.exp(bb.emit(R.squeeze(x, [2]))))
    assert operators(check(lower_operators, mod, normal(3, 2, 1)))["reshape"] == 1


@pytest.mark.parametrize(
    ("apply", "numpy"),
    [
        (lambda x: R.nn.relu(x), lambda a: np.maximum(a, 0)),
        (lambda x: R.clip(x, -1, 1), lambda a: np.clip(a, -1, 1)),
        (lambda x: R.sign(x), np.sign),
        (lambda x: R.maximum(x, weights(7)), lambda a: np.maximum(a, weights(7).value.numpy())),
        (lambda x: R.minimum(weights(7), x), lambda a: np.minimum(weights(7).value.numpy(), a)),
        (lambda x: R.max(x, [1]), lambda a: a.max(1)),
        (lambda x: R.max(x, [0], keepdims=True), lambda a: a.max(0, keepdims=True)),
        (lambda x: R.min(x), np.min),
        (lambda x: R.equal(x, x), lambda a: a == a),
        (lambda x: R.not_equal(x, x), lambda a: a != a),
        (lambda x: R.greater_equal(x, x), lambda a: a >= a),
    ],
)
def test_nan_and_infinity_as_in_numpy(
    apply: Callable[[relax.Expr], relax.Expr], numpy: Callable[[np.ndarray], np.ndarray]
) -> None:
    data = normal(6, 7)
    data[0, 0], data[2, 3], data[3, 5], data[5, 6] = NAN, np.inf, -np.inf, NAN
    mod = module((6, 7), lambda bb, x: apply(x))
    lowered, _ = lower_operators(mod, context())
    np.testing.assert_array_equal(run(lowered, data), numpy(data))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool_keeps_nan_and_ignores_padding(ceil_mode: bool) -> None:
    data = -np.abs(normal(1, 2, 7, 7)) - 1
    data[0, 0, 3, 3] = NAN
    mod = module(
        (1, 2, 7, 7),
        lambda bb, x: R.nn.max_pool2d(x, (3, 3), strides=2, padding=1, ceil_mode=ceil_mode),
    )
    lowered, _ = lower_operators(mod, context())
    padded = np.pad(data, ((0, 0), (0, 0), (1, 3), (1, 3)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(run(lowered, data), windows.max((4, 5))[:, :, :4, :4])


def test_integer_clip_and_maximum() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        clipped = bb.emit(R.clip(x, -2, 2))
        return R.maximum(clipped, relax.const(np.array([0, 1, 2], "int32")))

    data = np.array([[-5, 0, 5], [1, 1, 1]], "int32")
    lowered, _ = lower_operators(module((2, 3), build, "int32"), context())
    np.testing.assert_array_equal(run(lowered, data), np.maximum(np.clip(data, -2, 2), [0, 1, 2]))


def test_a_long_chain_of_clamps_stays_small() -> None:
    """Each operator names its operand, so that inlining does not double the text each time."""
    mod = module((8,), lambda bb, x: R.nn.relu(x))
    (func,) = (
        f
        for f in lower_operators(mod, context())[0].functions.values()
        if isinstance(f, tirx.PrimFunc)
    )
    assert func.script().count("lv") + func.script().count("x[") <= 4


@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16), (16,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_constant_weight_is_packed(shape: tuple[int, ...], transposed: bool) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        if transposed:
            return R.matmul(x, bb.emit(R.permute_dims(weights(23, 16), [1, 0])))
        return R.matmul(x, weights(16, 23))

    lowered = check(lower_operators, module(shape, build), normal(*shape))
    lowered = relax.transform.DeadCodeElimination()(lowered)
    assert operators(lowered) == {"call_tir": 1}
    (binding,) = lowered["main"].body.blocks[0].bindings
    packed = binding.value.args[1].fields[1]
    # Panels of nr columns: nothing of the weight's own shape is left.
    panels, depth, width = (int(d) for d in packed.ty.shape.values)
    assert depth == 16
    assert (panels - 1) * width < 23 <= panels * width


def test_a_shared_weight_is_packed_once() -> None:
    weight = weights(16, 16)

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.matmul(bb.emit(R.matmul(x, weight)), weight)

    lowered = check(lower_operators, module((4, 16), build), normal(4, 16))
    first, second = (b.value.args[1].fields[1] for b in lowered["main"].body.blocks[0].bindings)
    assert first.same_as(second)


def test_a_swapped_operand_becomes_a_flag() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.matmul(x, bb.emit(R.permute_dims(x, [0, 2, 1])))

    lowered = check(lower_operators, module((2, 5, 9), build), normal(2, 5, 9))
    lowered = relax.transform.DeadCodeElimination()(lowered)
    assert operators(lowered) == {"call_tir": 1}


def test_empty_products_are_zero() -> None:
    mod = module((4, 0), lambda bb, x: R.matmul(x, relax.const(np.zeros((0, 4), "float32"))))
    check(lower_operators, mod, np.zeros((4, 0), "float32"))


def test_an_operator_without_a_rule_is_named() -> None:
    class_op = tvm.ir.Op.get("relax.nn.attention_var_len")
    with pytest.raises(NotLowered, match="attention_var_len"):
        lower_operators(_unlowerable(class_op), context())


def _unlowerable(op: tvm.ir.Op) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((1, 4, 2, 8), "float32"))
    seq = relax.Var("seq", relax.TensorType((2,), "int32"))
    top = relax.Var("top", relax.TensorType((), "int32"))
    with builder.function("main", [q, seq, top]):
        with builder.dataflow():
            call = R.nn.attention_var_len(q, q, q, seq, seq, top, top)
            assert call.op == op
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(
    ("apply", "numpy"),
    [
        (lambda x: R.cumsum(x, 0), lambda a: np.cumsum(a, 0)),
        (lambda x: R.cumprod(x, 1), lambda a: np.cumprod(a, 1)),
        (lambda x: R.sort(x, 0), lambda a: np.sort(a, 0)),
        (lambda x: R.argsort(x, 1), lambda a: np.argsort(a, 1).astype("int32")),
        (lambda x: R.topk(x, 2, axis=1, ret_type="values"), lambda a: -np.sort(-a, 1)[:, :2]),
    ],
)
def test_scans_and_sorts_are_lowered(apply, numpy) -> None:
    """TVM lowers them by a pass of their own, not by `LegalizeOps`."""
    x = normal(5, 4)
    mod = module((5, 4), lambda bb, v: apply(v))
    check(lower_operators, mod, x, reference=numpy(x))


@pytest.mark.parametrize("shape", [(8,), (2, 3)])
def test_rms_norm_over_all_axes(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    axes = list(range(len(shape)))
    mod = module(shape, lambda bb, v: R.nn.rms_norm(v, weights(*shape), axes, 1e-3))
    gamma = np.random.default_rng(0).standard_normal(shape).astype("float32")
    wanted = x / np.sqrt(np.mean(x * x) + 1e-3) * gamma
    check(lower_operators, mod, x, reference=wanted)
