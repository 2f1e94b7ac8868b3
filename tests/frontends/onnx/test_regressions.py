"""Kinds of fault that importers have shown, through the whole compiler (O1, O5-O7, O9, O15, O16).

The expected values are NumPy's: each case is one that another importer gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from tests.frontends.onnx.run_model import make_model

Array = np.ndarray
Feeds = Mapping[str, Array]


def run(model: Any, feeds: Feeds, **options: Any) -> list[Array]:
    """Compile and run; always return a list."""
    compiled = relaxc.compile(model, threads=1, progress=False, **options)
    results = compiled(**{spec.name: feeds[spec.name] for spec in compiled.inputs})
    return [results] if len(compiled.outputs) == 1 else list(results)


def one_node(
    op: str,
    feeds: Feeds,
    *,
    opset: int,
    constants: Feeds | None = None,
    outputs: int = 1,
    kind: int | None = None,
    **attributes: Any,
) -> list[Array]:
    """Run a model of one node: `feeds` are its inputs, `constants` initializers after them."""
    known = constants or {}
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op, [*feeds, *known], names, **attributes)
    first = helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    model = make_model(
        [node],
        {name: (array.dtype, array.shape) for name, array in feeds.items()},
        names,
        known,
        opset=opset,
        output_types=dict.fromkeys(names, first if kind is None else kind),
    )
    return run(model, feeds)


def assert_same(actual: Array, expected: Any, tolerance: float = 1e-6) -> None:
    """Assert equal shape, dtype and numbers, NaN at the same places."""
    wanted = np.asarray(expected)
    assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


# O1: NaN propagates ---------------------------------------------------------------------------

WITH_NAN = np.array([[np.nan, -1.0, 2.0, 0.5], [3.0, np.nan, -4.0, 0.0]], "float32")
OTHER = np.array([[1.0, np.nan, 1.0, 1.0], [np.nan, 2.0, 2.0, -1.0]], "float32")


def clipped(x: Array) -> Array:
    return np.minimum(np.maximum(x, np.float32(-0.75)), np.float32(0.75))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("op", "constants", "attributes", "expected"),
    [
        ("Relu", {}, {}, lambda x: np.maximum(x, 0)),
        ("Clip", {"low": -0.75, "high": 0.75}, {}, clipped),
        ("Sign", {}, {}, np.sign),
        ("ReduceMax", {}, {"axes": [1]}, lambda x: x.max(1, keepdims=True)),
        ("ReduceMin", {}, {"axes": [0], "keepdims": 0}, lambda x: x.min(0)),
    ],
)
def test_nan_survives_one_operand(
    op: str,
    constants: Mapping[str, float],
    attributes: dict[str, Any],
    expected: Callable[[Array], Array],
    dtype: str,
) -> None:
    x = WITH_NAN.astype(dtype)
    known = {name: np.array(value, dtype) for name, value in constants.items()}
    (y,) = one_node(op, {"x": x}, constants=known, opset=13, **attributes)
    assert_same(y, expected(x).astype(dtype))


@pytest.mark.parametrize(("op", "expected"), [("Max", np.maximum), ("Min", np.minimum)])
def test_nan_survives_either_operand(op: str, expected: Callable[..., Array]) -> None:
    for dtype in ("float32", "float64"):
        a, b = WITH_NAN.astype(dtype), OTHER.astype(dtype)
        (y,) = one_node(op, {"a": a, "b": b}, opset=13)
        assert_same(y, expected(a, b))


def test_nan_survives_max_pool() -> None:
    x = WITH_NAN.reshape(1, 1, 2, 4)
    (y,) = one_node("MaxPool", {"x": x}, opset=12, kernel_shape=[2, 2], strides=[2, 2])
    assert_same(y, np.array([[[[np.nan, 2.0]]]], "float32"))


# O5: the greatest version not above the model's opset decides ---------------------------------

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
INT64 = TensorProto.INT64


def operand(opset: int, since: int, name: str, value: Any, dtype: str = "int64") -> dict[str, Any]:
    """Return an operand as attribute before opset `since`, as initializer from then on."""
    if opset < since:
        return {name: value}
    return {"constants": {name: np.array(value, dtype)}}


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 10, 11, 12, 13, 18])
def test_clip_by_version(opset: int) -> None:
    if opset < 11:
        (y,) = one_node("Clip", {"x": X}, opset=opset, min=-0.5, max=0.25)
    else:
        bounds = {"low": np.array(-0.5, "float32"), "high": np.array(0.25, "float32")}
        (y,) = one_node("Clip", {"x": X}, opset=opset, constants=bounds)
    assert_same(y, np.clip(X, -0.5, 0.25).astype("float32"))


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 10, 11, 12, 13, 18])
def test_reduce_mean_by_version(opset: int) -> None:
    axes = [0, 2] if opset < 11 else [0, -1]
    (y,) = one_node("ReduceMean", {"x": X}, opset=opset, **operand(opset, 18, "axes", axes))
    assert_same(y, X.mean((0, 2), keepdims=True))


@pytest.mark.parametrize("opset", [1, 6, 9, 11, 12, 13, 18])
def test_reduce_sum_by_version(opset: int) -> None:
    """ReduceSum took its axes as input five versions before the others."""
    (y,) = one_node("ReduceSum", {"x": X}, opset=opset, **operand(opset, 13, "axes", [1]))
    assert_same(y, X.sum(1, keepdims=True), 1e-5)


@pytest.mark.parametrize("opset", [1, 6, 9, 11, 12, 13, 18])
def test_squeeze_and_unsqueeze_by_version(opset: int) -> None:
    x = X.reshape(2, 1, 3, 1, 4)
    (y,) = one_node("Squeeze", {"x": x}, opset=opset, **operand(opset, 13, "axes", [1]))
    assert_same(y, x.squeeze(1))
    axes = [0, 2] if opset < 11 else [0, -1]
    (y,) = one_node("Unsqueeze", {"x": X}, opset=opset, **operand(opset, 13, "axes", axes))
    assert_same(y, X.reshape(1, 2, 1, 3, 4) if opset < 11 else X.reshape(1, 2, 3, 4, 1))


@pytest.mark.parametrize("opset", [2, 11, 12, 13, 18])
def test_split_by_version(opset: int) -> None:
    sizes = operand(opset, 13, "split", [1, 3])
    first, second = one_node("Split", {"x": X}, opset=opset, outputs=2, axis=2, **sizes)
    assert_same(first, X[:, :, :1])
    assert_same(second, X[:, :, 1:])


def test_split_into_unequal_rests() -> None:
    """From opset 18 on `num_outputs` may not divide the size: the last part is the smaller."""
    parts = one_node("Split", {"x": X}, opset=18, outputs=2, axis=1, num_outputs=2)
    assert_same(parts[0], X[:, :2])
    assert_same(parts[1], X[:, 2:])


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 10, 11, 12, 13, 18])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_by_version(op: str, opset: int) -> None:
    """Before opset 13 the axes from `axis` on are one, and the default axis is the second."""
    x = X.astype("float64")
    rows = x.reshape(2, 12) if opset < 13 else x.reshape(6, 4)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    result = powers / powers.sum(1, keepdims=True)
    if op == "LogSoftmax":
        result = np.log(result)
    elif op == "Hardmax":
        result = (rows == rows.max(1, keepdims=True)).astype("float64")
    (y,) = one_node(op, {"x": X}, opset=opset)
    assert_same(y, result.reshape(X.shape).astype("float32"), 1e-5)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 10, 11, 12, 13, 18])
def test_dropout_by_version(opset: int) -> None:
    """Inference leaves the input as it is; the mask became boolean in opset 10."""
    if opset < 7:  # its mask has no meaning then
        assert_same(one_node("Dropout", {"x": X}, opset=opset, is_test=1)[0], X)
        return
    kind = TensorProto.BOOL if opset >= 10 else TensorProto.FLOAT
    model = make_model(
        [helper.make_node("Dropout", ["x"], ["y", "mask"])],
        {"x": ("float32", X.shape)}, ["y", "mask"], opset=opset, output_types={"mask": kind},
    )  # fmt: skip
    y, mask = run(model, {"x": X})
    assert_same(y, X)
    assert_same(mask, np.ones(X.shape, bool if opset >= 10 else "float32"))


@pytest.mark.parametrize("opset", [1, 2, 6, 9, 10, 11, 12, 13, 18])
def test_pad_by_version(opset: int) -> None:
    pads = [0, 1, 2, 1, 0, 3]
    if opset < 11:
        given: dict[str, Any] = {"paddings" if opset < 2 else "pads": pads, "value": 0.5}
    else:
        fill = np.array(0.5, "float32")
        given = {"constants": {"pads": np.array(pads), "fill": fill}}
    (y,) = one_node("Pad", {"x": X}, opset=opset, mode="constant", **given)
    assert_same(y, np.pad(X, [(0, 1), (1, 0), (2, 3)], constant_values=0.5).astype("float32"))


@pytest.mark.parametrize("opset", [1, 6, 9, 10, 11, 13, 18])
def test_slice_by_version(opset: int) -> None:
    bounds: dict[str, Any] = {"starts": [0, 1], "ends": [1, -1], "axes": [1, 2]}
    if opset < 10:
        (y,) = one_node("Slice", {"x": X}, opset=opset, **bounds)
    else:
        known = {name: np.array(values) for name, values in bounds.items()}
        (y,) = one_node("Slice", {"x": X}, opset=opset, constants=known)
    assert_same(y, X[:, 0:1, 1:-1])


# O6: variadic operators of constants are elementwise -------------------------------------------


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_variadic_operators_of_constants(op: str) -> None:
    constants = {f"c{i}": X[i % 2] * (i + 1) for i in range(3)}
    parts = np.stack(list(constants.values()))
    expected = {
        "Sum": parts.sum(0),
        "Max": parts.max(0),
        "Min": parts.min(0),
        "Mean": parts.mean(0),
    }
    nodes = [
        helper.make_node(op, list(constants), ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = make_model(nodes, {"x": ("float32", [3, 4])}, ["y"], constants)
    assert_same(run(model, {"x": X[0]})[0], X[0] + expected[op], 1e-5)


# O7: arithmetic on shapes truncates, and the result may be symbolic ----------------------------


def test_a_slice_and_a_reshape_by_half_of_a_symbolic_size() -> None:
    """Shape -> Gather -> Div -> Cast -> Slice and Reshape; sizes 6 and 7 with one compilation."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"], axis=0),
        helper.make_node("Div", ["n", "two"], ["half64"]),
        helper.make_node("Cast", ["half64"], ["half32"], to=TensorProto.INT32),
        helper.make_node("Cast", ["half32"], ["half"], to=INT64),
        helper.make_node("Slice", ["x", "zero", "half", "one"], ["front"]),
        helper.make_node("Concat", ["half", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["front", "target"], ["y"]),
    ]
    constants = {"zero": [0], "one": [1], "two": [2], "minus": [-1]}
    model = make_model(
        nodes,
        {"x": ("float32", [4, "n"])},
        ["y"],
        {name: np.array(value) for name, value in constants.items()},
    )
    compiled = relaxc.compile(model, threads=1, progress=False)
    for size in (6, 7):
        x = np.arange(4.0 * size, dtype="float32").reshape(4, size)
        assert_same(compiled(x), x[:, : size // 2].reshape(size // 2, -1))


# O9: rounding, integer division, shifts, powers ------------------------------------------------


def test_halves_are_rounded_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0], "float32")
    assert_same(one_node("Round", {"x": x}, opset=13)[0], np.round(x), 0)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_quotients_and_remainders_of_negatives(dtype: str) -> None:
    a = np.array([7, -7, 7, -7, 0, 100], dtype)
    b = np.array([2, 2, -2, -2, 3, -7], dtype)
    (quotient,) = one_node("Div", {"a": a, "b": b}, opset=14)
    assert_same(quotient, np.trunc(a.astype("float64") / b).astype(dtype))
    assert_same(one_node("Mod", {"a": a, "b": b}, opset=13)[0], np.mod(a, b))
    assert_same(one_node("Mod", {"a": a, "b": b}, opset=13, fmod=1)[0], np.fmod(a, b))


def test_remainders_of_floats() -> None:
    a = np.array([7.5, -7.5, 7.5, -7.5, 1e-3, 5e7], "float32")
    b = np.array([2.0, 2.0, -2.0, -2.0, 3.0, 7.0], "float32")
    assert_same(one_node("Mod", {"a": a, "b": b}, opset=13, fmod=1)[0], np.fmod(a, b), 0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_a_shift_past_the_width_is_zero(dtype: str, direction: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    x = np.full(4, np.iinfo(dtype).max, dtype)
    by = np.array([0, bits - 1, bits, bits + 5], dtype)
    (y,) = one_node("BitShift", {"x": x, "by": by}, opset=11, direction=direction)
    top = 1 << (bits - 1)
    last = top if direction == "LEFT" else 1
    assert_same(y, np.array([np.iinfo(dtype).max, last, 0, 0], dtype), 0)


def test_a_power_has_its_bases_dtype() -> None:
    base, exponent = np.array([1, 2, 3, 4]), np.array([0.0, 3.0, 2.0, 0.5], "float32")
    (y,) = one_node("Pow", {"x": base, "e": exponent}, opset=13)
    assert_same(y, np.array([1, 8, 9, 2]), 0)
    (y,) = one_node("Pow", {"e": exponent, "x": base}, opset=13)
    assert_same(y, np.array([0.0, 9.0, 8.0, 0.0625], "float32"))


def test_integer_powers_are_exact() -> None:
    base, exponent = np.array([3, -3, 10, 2]), np.array([39, 39, 18, 62])
    assert_same(one_node("Pow", {"x": base, "e": exponent}, opset=13)[0], base**exponent, 0)


# O15, O16: where a weight comes from does not matter -------------------------------------------

W = np.random.default_rng(1).standard_normal((4, 5)).astype("float32")
B = np.random.default_rng(2).standard_normal(5).astype("float32")


def affine(
    nodes: Sequence[onnx.NodeProto] = (), weights: Feeds | None = None, *, inputs: bool = False
) -> onnx.ModelProto:
    """y = relu(x @ w + b), where w and b come from `nodes`, initializers or inputs."""
    known = weights or {}
    declared: dict[str, tuple[Any, Sequence[int | str]]] = {"x": ("float32", [3, 4])}
    if inputs:
        declared |= {"w": ("float32", W.shape), "b": ("float32", B.shape)}
    tail = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    return make_model([*nodes, *tail], declared, ["y"], known)


def constant_nodes() -> list[onnx.NodeProto]:
    """Return w and b as Constant nodes."""
    return [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
        for name, array in (("w", W), ("b", B))
    ]


def test_weights_are_equal_wherever_they_come_from(tmp_path: Path) -> None:
    """Initializers, Constant nodes, inputs with defaults, external data: the same bits."""
    x = X[0]
    external = tmp_path / "model.onnx"
    onnx.save(
        affine(weights={"w": W, "b": B}),
        external,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert (tmp_path / "weights.bin").stat().st_size >= W.nbytes + B.nbytes
    sources: list[Any] = [
        affine(weights={"w": W, "b": B}),
        affine(constant_nodes()),
        affine(weights={"w": W, "b": B}, inputs=True),
        external,
    ]
    first, *others = [run(source, {"x": x})[0] for source in sources]
    assert_same(first, np.maximum(x @ W + B, 0), 1e-5)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_weights_as_constants_and_as_arguments_agree_to_the_bit() -> None:
    feeds = {"x": X[0], "w": W, "b": B}
    (embedded,) = run(affine(weights={"w": W, "b": B}), feeds)
    (given,) = run(affine(inputs=True), feeds)
    np.testing.assert_array_equal(embedded, given)


def test_weights_repeated_in_both_branches() -> None:
    """Each branch of an If has its own initializer of the same name, and reads x from outside."""

    def branch(sign: float) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["product"])],
            "branch",
            [],
            [helper.make_tensor_value_info("product", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(W * np.float32(sign), "w")],
        )

    for flag, sign in ((True, 1), (False, -1)):
        nodes = [
            helper.make_node(
                *("If", ["flag"], ["z"]), then_branch=branch(1.0), else_branch=branch(-1.0)
            ),
            helper.make_node("Neg", ["z"], ["y"]),
        ]
        model = make_model(nodes, {"x": ("float32", [3, 4])}, ["y"], {"flag": np.array(flag)})
        assert_same(run(model, {"x": X[0]})[0], -sign * (X[0] @ W), 1e-5)
