"""Shapes, axes, sizes and pads that are inputs: one compilation serves every value of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxc
from frontends.onnx import import_onnx
from tests.frontends.onnx.compiled import node_model
from tests.frontends.onnx.run_model import make_model, run_reference

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")


def compile_node(
    op: str, inputs: dict[str, tuple[Any, Any]], *, opset: int = 18, outputs: int = 1, **attrs: Any
) -> relaxc.CompiledModel:
    """Compile a model of one node; every input is given at run time."""
    names = [f"y{number}" for number in range(outputs)]
    model = make_model([helper.make_node(op, list(inputs), names, **attrs)], inputs, names,
                       opset=opset)  # fmt: skip
    return relaxc.compile(model, threads=1, progress=False)


def assert_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(actual, expected)


def test_reshape_resolves_zero_and_minus_one() -> None:
    model = compile_node("Reshape", {"x": ("float32", ["a", 3, 4]), "shape": ("int64", [3])})
    for shape, size in (([0, -1, 2], 2), ([-1, 0, 0], 5), ([6, 2, 2], 2), ([1, 1, -1], 3)):
        x = np.resize(X, (size, 3, 4))
        have = [have if want == 0 else want for want, have in zip(shape, x.shape, strict=True)]
        assert_equal(model(x, np.array(shape)), x.reshape(have))


def test_reshape_takes_zero_literally_if_told() -> None:
    model = compile_node(
        "Reshape", {"x": ("float32", [0, 3]), "shape": ("int64", [2])}, allowzero=1
    )
    assert model(np.zeros((0, 3), "float32"), np.array([7, 0])).shape == (7, 0)


def test_reshape_to_a_scalar() -> None:
    model = compile_node("Reshape", {"x": ("float32", [1, 1]), "shape": ("int64", [0])})
    assert_equal(model(X[:1, 0, :1], np.zeros(0, "int64")), X[0, 0, 0].reshape(()))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_unsqueeze(rank: int) -> None:
    x = X[(0,) * (3 - rank)]
    model = compile_node("Unsqueeze", {"x": ("float32", x.shape), "axes": ("int64", [2])})
    for axes in ([0, 1], [1, 0], [-1, 0], [-2, -1]):
        assert_equal(model(np.asarray(x), np.array(axes)), np.expand_dims(x, axes))


def test_squeeze() -> None:
    x = X.reshape(1, 2, 1, 3, 4)
    model = compile_node("Squeeze", {"x": ("float32", x.shape), "axes": ("int64", [1])})
    for axis in (0, 2, -3, -5):
        assert_equal(model(x, np.array([axis])), x.squeeze(axis))
    model = compile_node("Squeeze", {"x": ("float32", [1, 1]), "axes": ("int64", [2])})
    assert_equal(model(X[:1, 0, :1], np.array([0, 1])), X[0, 0, 0].reshape(()))


def test_squeeze_checks_a_symbolic_size() -> None:
    model = compile_node("Squeeze", {"x": ("float32", [2, "n"])}, opset=11, axes=[1])
    assert_equal(model(X[:, 0, :1]), X[:, 0, 0])
    with pytest.raises(relaxc.RunError, match="y0"):
        model(X[:, 0])


def test_split_by_sizes() -> None:
    model = compile_node(
        "Split", {"x": ("float32", [2, 3, 4]), "sizes": ("int64", [3])}, outputs=3, axis=2
    )
    for sizes in ([1, 2, 1], [0, 1, 3], [4, 0, 0]):
        parts = np.split(X, np.cumsum(sizes)[:-1], axis=2)
        for actual, expected in zip(model(X, np.array(sizes)), parts, strict=True):
            assert_equal(actual, np.ascontiguousarray(expected))


def test_split_of_a_symbolic_size_leaves_the_rest_to_the_last_part() -> None:
    model = compile_node("Split", {"x": ("float32", ["n"])}, outputs=3, num_outputs=3)
    for size in (6, 7, 8):
        x = np.arange(size, dtype="float32")
        each = -(-size // 3)
        parts = (x[:each], x[each : 2 * each], x[2 * each :])
        for actual, expected in zip(model(x), parts, strict=True):
            assert_equal(actual, expected)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_by_widths_value_and_axes(mode: str) -> None:
    inputs = {"x": ("float32", ["a", 3, 4]), "pads": ("int64", [4]), "value": ("float32", []),
              "axes": ("int64", [2])}  # fmt: skip
    model = compile_node("Pad", inputs, opset=19, mode=mode)
    value = np.array(2.5, "float32")
    for axes, pads in (([0, 2], [1, 2, 0, 3]), ([-1, 1], [0, 2, 3, 1])):
        widths = [(0, 0)] * 3
        for place, axis in enumerate(axes):
            widths[axis] = (pads[place], pads[2 + place])
        options = {"constant_values": 2.5} if mode == "constant" else {}
        expected = np.pad(X, widths, mode, **options)  # type: ignore[call-overload]
        assert_equal(model(X, np.array(pads), value, np.array(axes)), expected)


def test_negative_pads_cut() -> None:
    model = compile_node("Pad", {"x": ("float32", [2, 3, 4]), "pads": ("int64", [6])}, opset=13)
    actual = model(X, np.array([0, -1, 1, 1, 0, -2]))
    assert_equal(actual, np.pad(X[:, 1:, :-2], [(0, 1), (0, 0), (1, 0)]))


def test_dropout_in_training_keeps_the_mean() -> None:
    """The mode is an input: False passes x through; True drops the given part, scaled up."""
    inputs = {"x": ("float32", [400, 100]), "ratio": ("float32", []), "training": ("bool", [])}
    node = helper.make_node("Dropout", list(inputs), ["y", "mask"], seed=3)
    model = make_model([node], inputs, ["y", "mask"], output_types={"mask": TensorProto.BOOL})
    compiled = relaxc.compile(model, threads=1, progress=False)
    x = np.random.default_rng(1).uniform(1, 2, (400, 100)).astype("float32")
    ratio = np.array(0.3, "float32")
    y, mask = compiled(x, ratio, np.array(False))
    assert_equal(y, x)
    assert mask.all()
    y, mask = compiled(x, ratio, np.array(True))
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.7), 0), rtol=1e-6)
    assert abs(mask.mean() - 0.7) < 0.01
    again, _ = compiled(x, ratio, np.array(True))
    assert_equal(again, y)
    y, mask = compiled(x, np.array(0.0, "float32"), np.array(True))
    assert mask.all() and (y == x).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("attrs", [{}, {"fmod": 1}])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_division_never_ends_the_process(op: str, attrs: dict, dtype: str) -> None:
    """By 0 it gives 0, and the lowest number by -1 wraps; x86 traps both."""
    if op == "Div" and attrs:
        pytest.skip("fmod is Mod's")
    a, b = np.array([7, 1, 6], dtype), np.array([2, 0, 3], dtype)
    source = node_model(op, [a, b], 1, symbolic={0: ["n"], 1: ["n"]}, **attrs)
    model = relaxc.compile(source, threads=1, progress=False)
    assert_equal(model(a, b), np.array([3, 0, 2] if op == "Div" else [1, 0, 0], dtype))
    if dtype != "uint8":
        lowest = np.array([np.iinfo(dtype).min, -7], dtype)
        want = np.array([lowest[0], 7] if op == "Div" else [0, 0], dtype)
        assert_equal(model(lowest, np.array([-1, -1], dtype)), want)


@pytest.mark.parametrize("scale", [1.5, 0.75])
def test_sizes_computed_by_an_intrinsic_are_not_fused_and_compile(scale: float) -> None:
    """FuseTIR took `floor` and `if_then_else` in the sizes of a group for operators."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        helper.make_node("Relu", ["r"], ["a"]),
        helper.make_node("ConvTranspose", ["a", "w"], ["t"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]  # fmt: skip
    fixed = {"scales": np.array([1, 1, 1, scale], "float32"), "w": np.ones((1, 1, 3, 3), "float32")}
    model = make_model(nodes, {"x": ("float32", [1, 1, "h", "w_"])}, ["y"], fixed)
    compiled = relaxc.compile(model, threads=1, progress=False)
    for shape in ((1, 1, 3, 4), (1, 1, 5, 7)):
        x = np.resize(X, shape)
        (want,) = run_reference(model, {"x": x})
        np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)


def test_layer_norm_broadcasts_a_constant_scale_over_symbolic_sizes() -> None:
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], axis=-2)
    fixed = {"scale": np.arange(4, dtype="float32")}
    model = make_model([node], {"x": ("float32", ["a", "b", 4])}, ["y"], fixed)
    compiled = relaxc.compile(model, threads=1, progress=False)
    (want,) = run_reference(model, {"x": X})
    np.testing.assert_allclose(compiled(X), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [[2, 3], [5, -1], [-1, -1], [-3, -4], [2**40, 2**40]])
def test_reshape_to_another_number_of_elements_is_refused(shape: list[int]) -> None:
    """It gave a part of the elements, or read beyond them."""
    model = compile_node("Reshape", {"x": ("float32", ["a", 6]), "shape": ("int64", [2])})
    with pytest.raises(relaxc.RunError, match="y0|size"):
        model(np.zeros((2, 6), "float32"), np.array(shape))


def test_parts_that_do_not_add_up_are_refused() -> None:
    """It read beyond the tensor."""
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1)
    model = make_model([node], {"x": ("float32", ["n", "m"]), "sizes": ("int64", [2])}, ["a", "b"])
    compiled = relaxc.compile(model, threads=1, progress=False)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    a, b = compiled(x, np.array([3, 1]))
    assert_equal(np.concatenate([a, b], 1), x)
    with pytest.raises(relaxc.RunError, match="sizes_add_up"):
        compiled(x, np.array([3, 9]))


def test_expanding_to_a_shape_that_does_not_fit_is_refused() -> None:
    """It read beyond the tensor."""
    compiled = compile_node("Expand", {"x": ("float32", ["n", 3]), "shape": ("int64", [2])})
    x = np.array([[1, 2, 3]], "float32")
    assert_equal(compiled(x, np.array([2, 3])), np.repeat(x, 2, 0))
    for wrong in ([2, 2], [0, 2], [2, 7]):
        with pytest.raises(relaxc.RunError, match="y0_broadcasts"):
            compiled(x, np.array(wrong))
    with pytest.raises(relaxc.RunError, match="y0_broadcasts"):
        compiled(np.ones((4, 3), "float32"), np.array([2, 3]))


def test_reduction_over_a_number_of_axes_that_is_known_at_run_time() -> None:
    """No axes at all mean every axis, unless the node says that they mean none."""
    for op, noop in (("ReduceMax", 0), ("ReduceSum", 1)):
        node = helper.make_node(op, ["x", "axes"], ["y"], noop_with_empty_axes=noop)
        inputs = {"x": ("float32", ["n", 3]), "axes": ("int64", ["k"])}
        model = make_model([node], inputs, ["y"], opset=18)
        compiled = relaxc.compile(model, threads=1, progress=False)
        for axes in ([1], [-1, 0], []):
            feeds = {"x": X[0, :, :3], "axes": np.array(axes, "int64")}
            (want,) = run_reference(model, feeds)
            np.testing.assert_allclose(compiled(**feeds), want, rtol=1e-6)
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0)
    with pytest.raises(relaxc.UnsupportedOperator, match="no rank"):
        relaxc.compile(make_model([node], inputs, ["y"], opset=18), progress=False)


@pytest.mark.parametrize(
    "op", ["Reshape", "Expand", "Squeeze", "Unsqueeze", "ConstantOfShape", "GatherND"]
)
def test_vectors_whose_symbolic_length_is_the_rank_are_unsupported(op: str) -> None:
    inputs = {"x": ("float32", [2, 3]), "v": ("int64", [4, "k"] if op == "GatherND" else ["k"])}
    names = ["v"] if op == "ConstantOfShape" else ["x", "v"]
    model = make_model([helper.make_node(op, names, ["y"], name="n")], inputs, ["y"], opset=19)
    with pytest.raises(relaxc.UnsupportedOperator, match="unknown (length|number)|symbolic length"):
        import_onnx(model)


def test_vectors_of_symbolic_length_that_leave_the_rank_alone() -> None:
    """Pads and slices of some axes, and vectors whose length the operator says."""
    nodes = [
        helper.make_node("Pad", ["x", "pads", "", "axes"], ["padded"]),
        helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["sliced"]),
        helper.make_node("Tile", ["x", "repeats"], ["tiled"]),
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
    ]
    lengths = {"pads": "p", "axes": "k", "starts": "k", "ends": "k", "repeats": "r", "sizes": "s"}
    inputs: dict[str, tuple[Any, Any]] = {"x": ("float32", ["n", 3, 4])}
    inputs |= {name: ("int64", [symbol]) for name, symbol in lengths.items()}
    names = ["padded", "sliced", "tiled", "a", "b"]
    compiled = relaxc.compile(make_model(nodes, inputs, names, opset=18), threads=1, progress=False)
    given = {"x": X, "repeats": np.array([1, 2, 1]), "sizes": np.array([1, 2])}
    for axes, widths in (([-1], [(0, 0), (0, 0), (2, 1)]), ([2, 0], [(1, 1), (0, 0), (2, 1)])):
        pads = [widths[axis][side] for side in (0, 1) for axis in axes]
        numbers = {"pads": pads, "axes": axes, "starts": [1, 0][: len(axes)], "ends": [3, 1]}
        numbers["ends"] = numbers["ends"][: len(axes)]
        feeds = {**given, **{name: np.array(n, "int64") for name, n in numbers.items()}}
        padded, sliced, tiled, first, second = compiled(**feeds)
        assert_equal(padded, np.pad(X, widths))
        assert_equal(sliced, X[: 1 if len(axes) > 1 else 2, :, 1:3])
        assert_equal(tiled, np.tile(X, [1, 2, 1]))
        assert_equal(np.concatenate([first, second], 1), X)
    for wrong in ({"pads": np.array([1, 1, 1])}, {"repeats": np.array([2, 2])},
                  {"sizes": np.array([1, 1, 1])}, {"axes": np.array([0, 5])}):  # fmt: skip
        with pytest.raises(relaxc.RunError):
            compiled(**{**feeds, **wrong})
