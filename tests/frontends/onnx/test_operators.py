"""Operators against ONNX Runtime, the faults of shared/cases/regressions.md first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.run_model import assert_like_reference, make_model, run_imported

RNG = np.random.default_rng(7)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def check(
    op: str,
    *inputs: np.ndarray,
    constants: tuple[np.ndarray, ...] = (),
    outputs: int = 1,
    opset: int = 17,
    types: dict[str, int] | None = None,
    domain: str = "",
    tolerance: float = 1e-5,
    **attributes: Any,
) -> None:
    """Compare one node, its first inputs given at run time and the rest as initializers."""
    names = [f"x{place}" for place in range(len(inputs))]
    fixed = [f"c{place}" for place in range(len(constants))]
    results = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names + fixed, results, domain=domain, **attributes)
    model = make_model(
        [node],
        {name: (array.dtype, array.shape) for name, array in zip(names, inputs, strict=True)},
        results,
        dict(zip(fixed, constants, strict=True)),
        opset=opset,
        output_types=types,
        domains={domain: 1} if domain else None,
    )
    assert_like_reference(model, dict(zip(names, inputs, strict=True)), tolerance=tolerance)


@pytest.mark.parametrize(
    "op",
    [
        "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Sign", "Sin",
        "Softplus", "Softsign", "Tanh", "Elu", "Selu", "HardSigmoid", "HardSwish", "LeakyRelu",
        "Celu", "ThresholdedRelu", "Mish",
    ],
)  # fmt: skip
def test_unary(op: str) -> None:
    check(op, _floats(3, 5) * 3, opset=18)


def test_softplus_does_not_overflow() -> None:
    check("Softplus", np.asarray([-200.0, 0.0, 200.0], "float32"))


def test_round_half_to_even() -> None:
    check("Round", np.asarray([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4], "float32"))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_division_truncates(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    left, right = np.asarray([7, -7, 7, -7], dtype), np.asarray([2, 2, -2, -2], dtype)
    check("Div", left, right, types={"y0": kind})


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_negatives(fmod: int) -> None:
    left, right = np.asarray([7, -7, 7, -7], "int64"), np.asarray([3, 3, -3, -3], "int64")
    check("Mod", left, right, types={"y0": TensorProto.INT64}, fmod=fmod)


def test_float_fmod() -> None:
    check("Mod", np.asarray([7.5, -7.5], "float32"), np.asarray([2.0, 2.0], "float32"), fmod=1)


def test_pow_keeps_the_base_dtype() -> None:
    base, exponent = np.asarray([1, 2, 3], "int32"), np.asarray([2.0, 3.0, 2.0], "float32")
    check("Pow", base, exponent, types={"y0": TensorProto.INT32})


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift_past_the_width_is_zero(direction: str) -> None:
    x = np.asarray([255, 1, 8], "uint8")
    model = make_model(
        [helper.make_node("BitShift", ["x", "s"], ["y"], direction=direction)],
        {"x": ("uint8", [3]), "s": ("uint8", [3])},
        ["y"],
        output_types={"y": TensorProto.UINT8},
    )
    (result,) = run_imported(model, {"x": x, "s": np.asarray([8, 1, 9], "uint8")})
    want = [0, 2, 0] if direction == "LEFT" else [0, 0, 0]
    np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf_flags(positive: int, negative: int) -> None:
    check(
        "IsInf", np.asarray([np.inf, -np.inf, 1, np.nan], "float32"),
        types={"y0": TensorProto.BOOL},
        detect_positive=positive, detect_negative=negative,
    )  # fmt: skip


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_variadic_of_constants_is_elementwise(op: str) -> None:
    a, b = _floats(2, 3), _floats(2, 3)
    model = make_model(
        [helper.make_node(op, ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])],
        {"x": ("float32", [2, 3])},
        ["y"],
        {"a": a, "b": b},
    )
    assert_like_reference(model, {"x": _floats(2, 3)})


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_variadic_broadcasts(op: str) -> None:
    check(op, _floats(2, 3), _floats(3), _floats(2, 1))


@pytest.mark.parametrize(
    "attributes",
    [
        {}, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, {"dilations": [2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER"},
        {"pads": [0, 1, 2, 3]},
    ],
)  # fmt: skip
def test_conv(attributes: dict[str, Any]) -> None:
    check("Conv", _floats(1, 4, 9, 10), constants=(_floats(6, 4, 3, 2), _floats(6)),
          tolerance=1e-4, **attributes)  # fmt: skip


def test_conv_other_ranks_and_groups() -> None:
    check("Conv", _floats(2, 4, 9), constants=(_floats(6, 4, 3),), tolerance=1e-4)
    check("Conv", _floats(1, 2, 4, 5, 6), constants=(_floats(3, 2, 2, 2, 2),), tolerance=1e-4)
    check("Conv", _floats(1, 4, 6, 6), constants=(_floats(8, 2, 3, 3),), group=2, tolerance=1e-4)
    check("Conv", _floats(1, 4, 6, 6), constants=(_floats(4, 1, 3, 3),), group=4, tolerance=1e-4)


@pytest.mark.parametrize(
    "attributes",
    [
        {}, {"strides": [3, 2]}, {"strides": [2, 2], "output_padding": [1, 1]},
        {"strides": [3, 2], "output_shape": [10, 8]}, {"dilations": [2, 2]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
)  # fmt: skip
def test_conv_transpose(attributes: dict[str, Any]) -> None:
    check("ConvTranspose", _floats(1, 2, 3, 3), constants=(_floats(2, 3, 3, 3), _floats(3)),
          tolerance=1e-4, **attributes)  # fmt: skip


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2]}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [0, 0, 1, 1]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool(op: str, attributes: dict[str, Any]) -> None:
    check(op, _floats(1, 2, 7, 8), **attributes)


def test_max_pool_dilation_and_indices() -> None:
    check("MaxPool", _floats(1, 2, 7, 8), kernel_shape=[3, 3], dilations=[2, 2])
    check("MaxPool", _floats(2, 2, 7, 8), outputs=2, types={"y1": TensorProto.INT64},
          kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])  # fmt: skip


@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_average_pool_counts_padding(ceil_mode: int) -> None:
    x = np.arange(1, 17, dtype="float32").reshape(1, 1, 4, 4)
    model = make_model(
        [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2],
                          pads=[1, 1, 1, 1], count_include_pad=1, ceil_mode=ceil_mode)],
        {"x": ("float32", x.shape)}, ["y"], opset=19,
    )  # fmt: skip
    padded = np.pad(x[0, 0], 1)
    starts = [0, 2, 4] if ceil_mode else [0, 2]
    want = [[padded[r : r + 3, c : c + 3].mean() for c in starts] for r in starts]
    (result,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(result[0, 0], np.asarray(want, "float32"), rtol=1e-5)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(op: str) -> None:
    check(op, _floats(2, 3, 4, 5))
    check(op, _floats(2, 3, 4))


def test_batch_norm() -> None:
    statistics = (_floats(3), _floats(3), _floats(3), np.abs(_floats(3)) + 0.1)
    check("BatchNormalization", _floats(2, 3, 4, 5), constants=statistics, tolerance=1e-4)


def test_batch_norm_of_half_data_with_single_parameters() -> None:
    x = _floats(2, 3, 4).astype("float16")
    scale, bias, mean, variance = (np.full(3, v, "float32") for v in (2.0, 1.0, 0.5, 4.0))
    names = ["s", "b", "m", "v"]
    model = make_model(
        [helper.make_node("BatchNormalization", ["x", *names], ["y"], epsilon=0.0)],
        {"x": ("float16", x.shape)}, ["y"],
        dict(zip(names, (scale, bias, mean, variance), strict=True)),
        output_types={"y": TensorProto.FLOAT16},
    )  # fmt: skip
    (result,) = run_imported(model, {"x": x})
    assert result.dtype == np.float16
    want = (x.astype("float32") - 0.5) / 2.0 * 2.0 + 1.0
    np.testing.assert_allclose(result.astype("float32"), want, atol=2e-3)


def test_layer_norm_with_all_outputs() -> None:
    check("LayerNormalization", _floats(2, 3, 8), constants=(_floats(8), _floats(8)), outputs=3,
          axis=-1, tolerance=1e-4)  # fmt: skip
    check("LayerNormalization", _floats(2, 3, 8), constants=(_floats(3, 8),), axis=1,
          tolerance=1e-4)  # fmt: skip


def test_instance_and_group_norm() -> None:
    check("InstanceNormalization", _floats(2, 3, 4, 5), constants=(_floats(3), _floats(3)),
          tolerance=1e-4)  # fmt: skip
    check("GroupNormalization", _floats(2, 4, 3, 5), constants=(_floats(4), _floats(4)),
          num_groups=2, opset=21, tolerance=1e-4)  # fmt: skip
    check("LRN", _floats(2, 5, 3, 3), size=3)


def test_versions_deprecated_after_the_fact() -> None:
    """onnx's checker refuses them; ONNX Runtime runs the models that were written with them."""
    scales = (_floats(2), _floats(2))
    check("GroupNormalization", _floats(2, 4, 3), constants=scales, num_groups=2, opset=18)


@pytest.mark.parametrize("transposes", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(transposes: tuple[int, int]) -> None:
    a = _floats(5, 3) if transposes[0] else _floats(3, 5)
    b = _floats(4, 5) if transposes[1] else _floats(5, 4)
    check("Gemm", a, constants=(b, _floats(4)), transA=transposes[0], transB=transposes[1],
          alpha=0.5, beta=2.0)  # fmt: skip


def test_matmul_ranks() -> None:
    for left, right in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 1, 3, 4), (5, 4, 2))]:
        check("MatMul", _floats(*left), _floats(*right))


def test_gather_counts_from_the_end() -> None:
    data = _floats(4, 3)
    check("Gather", data, np.asarray([[-1, 0], [2, -4]], "int64"), axis=0)
    check("Gather", data, constants=(np.asarray(-1, "int64"),), axis=1)
    check("GatherElements", data, np.asarray([[0, -1, 2]], "int64"), axis=0)
    check("GatherND", data, np.asarray([[0, -1], [-2, 1]], "int64"))


def test_scatter() -> None:
    check("ScatterElements", _floats(3, 3), np.asarray([[1, 0, -1]], "int64"), _floats(1, 3),
          axis=0)  # fmt: skip
    check("ScatterND", _floats(4, 3), np.asarray([[1], [-1]], "int64"), _floats(2, 3))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [0], [1]), ([-2], [1000], [1], [1]), ([5], [0], [0], [-2]),
        ([-1], [-1000], [0], [-1]), ([4], [2], [0], [1]), ([0, 1], [6, 5], [0, 1], [2, 3]),
    ],
)  # fmt: skip
def test_slice(starts: list, ends: list, axes: list, steps: list) -> None:
    bounds = tuple(np.asarray(b, "int64") for b in (starts, ends, axes, steps))
    check("Slice", _floats(6, 5), constants=bounds)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    check("Pad", _floats(3, 4), constants=(np.asarray([1, 2, 0, 1], "int64"),), mode=mode)
    check("Pad", _floats(5, 6), constants=(np.asarray([-1, 2, 0, -3], "int64"),), mode="constant")


def test_expand_that_raises_the_rank() -> None:
    check("Expand", _floats(3, 1), constants=(np.asarray([2, 1, 4], "int64"),))
    check("Tile", _floats(2, 3), constants=(np.asarray([2, 3], "int64"),))


@pytest.mark.parametrize(("axis", "count"), [(0, 3), (1, 2), (1, 1)])
def test_tile_along_one_axis(axis: int, count: int) -> None:
    """The first version has a number of copies and an axis, of the data's type."""
    x = _floats(2, 3)
    model = make_model(
        [helper.make_node("Tile", ["x", "tiles", "axis"], ["y"])],
        {"x": ("float32", [2, 3])},
        ["y"],
        {"tiles": np.asarray(count, "float32"), "axis": np.asarray(axis, "float32")},
        opset=1,
    )
    (got,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(got, np.concatenate([x] * count, axis))


def test_split_into_unequal_parts() -> None:
    check("Split", _floats(7, 2), outputs=3, opset=18, num_outputs=3, axis=0)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_indices_are_int64(largest: int) -> None:
    check("TopK", _floats(3, 6), constants=(np.asarray([2], "int64"),), outputs=2,
          types={"y1": TensorProto.INT64}, largest=largest)  # fmt: skip


@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot_wraps_and_drops_indices(axis: int) -> None:
    values = np.asarray([2.0, 5.0], "float32")
    check("OneHot", np.asarray([0, -1, 3, -9, 7], "int64"),
          constants=(np.asarray(4, "int64"), values), axis=axis)  # fmt: skip


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_reduce(op: str, last: int) -> None:
    x = np.asarray([[1, 3, 3], [2, 2, 0]], "float32")
    check(op, x, types={"y0": TensorProto.INT64}, axis=1, keepdims=0, select_last_index=last)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    check("CumSum", _floats(3, 4), constants=(np.asarray(1, "int64"),), exclusive=exclusive,
          reverse=reverse)  # fmt: skip


@pytest.mark.parametrize(
    "op",
    ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
     "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"],
)  # fmt: skip
def test_reductions(op: str) -> None:
    check(op, np.abs(_floats(3, 4, 5)) + 0.1, constants=(np.asarray([0, -1], "int64"),), opset=18,
          keepdims=0, tolerance=1e-4)  # fmt: skip
    check(op, np.abs(_floats(3, 4)) + 0.1, opset=18, tolerance=1e-4)


def test_empty_axes_with_noop() -> None:
    check("ReduceSum", _floats(3, 4), constants=(np.zeros(0, "int64"),), noop_with_empty_axes=1)


def test_depth_to_space() -> None:
    for mode in ("DCR", "CRD"):
        check("DepthToSpace", _floats(1, 8, 2, 3), blocksize=2, mode=mode)
    check("SpaceToDepth", _floats(1, 2, 4, 6), blocksize=2)


def test_concat_with_an_empty_input() -> None:
    check("Concat", _floats(2, 3), _floats(0, 3), _floats(1, 3), axis=0)


def test_casts() -> None:
    x = np.asarray([-1.7, 0.0, 2.9], "float32")
    check("Cast", x, types={"y0": TensorProto.INT32}, to=TensorProto.INT32)
    check("Cast", x, types={"y0": TensorProto.BOOL}, to=TensorProto.BOOL)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3)])
def test_slopes_of_channels_before_opset_7(shape: tuple[int, ...]) -> None:
    x, slope = _floats(*shape), np.asarray([0.1, 0.5, -2], "float32")
    model = make_model([helper.make_node("PRelu", ["x", "slope"], ["y"])],
                       {"x": ("float32", shape), "slope": ("float32", (3,))},
                       ["y"], opset=6)  # fmt: skip
    (result,) = run_imported(model, {"x": x, "slope": slope})
    by_channel = slope.reshape(3, *[1] * (len(shape) - 2))
    np.testing.assert_array_equal(result, np.where(x < 0, x * by_channel, x))


def test_gelu() -> None:
    from scipy.special import erf

    x = _floats(3, 4)
    model = make_model([helper.make_node("Gelu", ["x"], ["y"])], {"x": ("float32", x.shape)},
                       ["y"], opset=20)  # fmt: skip
    (result,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(result, 0.5 * x * (1 + erf(x / np.sqrt(2))), rtol=1e-4, atol=1e-5)
