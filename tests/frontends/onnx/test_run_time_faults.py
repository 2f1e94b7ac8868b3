"""What only the data decides and does not fit: each gives a `RunError`, none ends the process."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxc
from tests.frontends.onnx.faulty_calls import Feed, Inputs, check, floats, model_of
from tests.frontends.onnx.run_model import make_model


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_range_of_absurd_length(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = ["start", "limit", "step"]
    node = helper.make_node("Range", names, ["y"])
    model = make_model([node], {n: (dtype, []) for n in names}, ["y"], output_types={"y": kind})

    def feed(*numbers: float) -> Feed:
        return {name: np.array(n, dtype) for name, n in zip(names, numbers, strict=True)}

    bad = [feed(0, 5, 0)]
    if dtype == "int64":
        bad += [feed(0, 2**60, 1), feed(0, 2**62, 1), feed(-(2**62), 2**62, 1)]
        bad += [feed(2**63 - 1, -(2**63), -1)]
    elif "float" in dtype:
        bad += [feed(0, 1, 1e-30), feed(0, 1e30, 1e-30), feed(0, 3e38, 1), feed(0, np.inf, 1)]
    check(model, feed(0, 7, 2), bad)


# Operator, its inputs besides the vector "s", a good vector, and refused ones.
SIZES: list[tuple[str, Inputs, list[int], list[list[int]]]] = [
    ("ConstantOfShape", {}, [2, 3], [[2**40, 2**40], [2**32, 2**32], [-1, 5]]),
    ("Expand", {"x": ("float32", [1, 1])}, [2, 3], [[2**31, 2**31], [-2, 1]]),
    ("Tile", {"x": ("float32", ["n", 3])}, [2, 2], [[2**61, 1], [-1, 1], [2**40, 2**40]]),
    ("Reshape", {"x": ("float32", ["n", 3])}, [3, 2], [[2**33, 2**33], [5, 2], [-1, 4], [-1, -1]]),
    (
        "Pad",
        {"x": ("float32", ["n", 3])},
        [1, 0, 0, 1],
        [[2**62, 0, 0, 0], [2**40, 2**40, 0, 0], [0, 0, 0, -5]],
    ),
    ("Resize", {"x": ("float32", ["n", 3])}, [4, 6], [[2**40, 2**40], [-1, 2]]),
    ("OneHot", {"x": ("int64", ["n", 3])}, [4], [[2**62], [-3]]),
    ("TopK", {"x": ("float32", ["n", 3])}, [2], [[4], [-1], [2**62]]),
]


@pytest.mark.parametrize(("op", "inputs", "good", "bad"), SIZES, ids=[case[0] for case in SIZES])
def test_sizes_given_at_run_time(
    op: str, inputs: Inputs, good: list[int], bad: list[list[int]]
) -> None:
    inputs = {**inputs, "s": ("int64", [len(good)])}
    if op == "OneHot":
        inputs["values"] = ("float32", [2])
    outputs = 2 if op == "TopK" else 1
    model = model_of(op, inputs, outputs)
    if op == "Resize":
        del model.graph.node[0].input[:]
        model.graph.node[0].input.extend(["x", "", "", "s"])

    def feed(sizes: list[int]) -> Feed:
        feeds: Feed = {"s": np.array(sizes)}
        if "x" in inputs:
            shape = [2 if dim == "n" else int(dim) for dim in inputs["x"][1]]
            feeds["x"] = floats(*shape).astype(inputs["x"][0])
        if op == "OneHot":
            feeds["values"] = np.array([0, 1], "float32")
        return feeds

    check(model, feed(good), [feed(sizes) for sizes in bad])


def numbers(*given: float, dtype: str = "int64") -> np.ndarray:
    return np.array(given if len(given) > 1 else given[0], dtype)


# Operator, good inputs, those whose sizes are symbols, refused values, opset, attributes.
REFUSED: list[tuple[str, Feed, str, list[Feed], int, dict[str, Any]]] = [
    ("Resize", {"x": floats(1, 1, 3, 4), "roi": np.zeros(0, "float32"),
                "s": numbers(1, 1, 2, 1.5, dtype="float32")}, "x",
     [{"s": numbers(1, 1, wrong, 2, dtype="float32")}
      for wrong in (0, -2, np.nan, np.inf, 1e30)], 18, {"mode": "linear"}),
    ("Col2Im", {"x": floats(1, 4, 9), "image": numbers(4, 4), "block": numbers(2, 2)}, "x",
     [{"image": numbers(1, 1)}, {"image": numbers(-4, 4)}, {"image": numbers(5, 5)},
      {"block": numbers(0, 0)}, {"block": numbers(-2, -2)}, {"block": numbers(3, 3)}], 18, {}),
    ("STFT", {"x": floats(1, 16, 1), "step": numbers(2), "window": floats(4)}, "",
     [{"step": numbers(0)}, {"step": numbers(-1)}], 17, {}),
    ("AffineGrid", {"theta": floats(1, 2, 3), "size": numbers(1, 1, 3, 4)}, "",
     [{"size": numbers(5, 1, 3, 4)}, {"size": numbers(1, 1, -3, 4)}], 20, {}),
    ("MaxUnpool", {"x": floats(1, 1, 2, 2), "i": np.array([[[[0, 3], [8, 11]]]]),
                   "shape": numbers(1, 1, 4, 4)}, "",
     [{"shape": numbers(1, 1, 2, 2)}, {"shape": numbers(1, 1, -4, 4)}], 18,
     {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Pad", {"x": floats(4, 3), "pads": numbers(0, -1, 2, 1)}, "x",
     [{"x": floats(0, 3)}, {"pads": numbers(-4, 0, 1, 0)}, {"pads": numbers(2, 0, -4, 0)}], 19,
     {"mode": "wrap"}),
    ("Slice", {"x": floats(4, 3), "starts": numbers(-1, 2), "ends": numbers(-9, -9),
               "axes": numbers(0, 1), "steps": numbers(-1, -1)}, "x",
     [{"steps": numbers(1, 0)}, {"axes": numbers(0, 2)}], 18, {}),
    ("Attention", {"q": floats(1, 2, 3, 4), "k": floats(1, 2, 5, 4), "v": floats(1, 2, 5, 4),
                   "": floats(), " ": floats(), "  ": floats(), "valid": np.array([4])}, "",
     [{"valid": np.array([6])}, {"valid": np.array([-1])}], 24, {}),
    ("RotaryEmbedding", {"x": floats(1, 2, 3, 4), "cosine": floats(6, 2), "sine": floats(6, 2),
                         "places": np.array([[0, 5, 2]])}, "",
     [{"places": np.array([[0, 6, 2]])}, {"places": np.array([[0, -1, 2]])}], 23, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "good", "symbolic", "bad", "opset", "attributes"), REFUSED, ids=[c[0] for c in REFUSED]
)
def test_numbers_that_an_operator_cannot_take(
    op: str, good: Feed, symbolic: str, bad: list[Feed], opset: int, attributes: dict[str, Any]
) -> None:
    """Each crashed, read beyond a tensor or gave a number before it was refused.

    STFT's frames, 12 // step + 1 of them, are the rows of a product: at most one tile.
    """
    names = [name.strip() for name in good]
    good = {name: array for name, array in good.items() if name.strip()}
    inputs: Inputs = {
        name: (
            str(array.dtype),
            [f"n{axis}" if name == symbolic else size for axis, size in enumerate(array.shape)],
        )
        for name, array in good.items()
    }
    model = model_of(op, inputs, opset=opset, **attributes)
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(names)
    check(model, good, [{**good, **wrong} for wrong in bad])


def test_pieces_that_do_not_add_up() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["pieces"]),
        helper.make_node("SequenceAt", ["pieces", "last"], ["y"]),
    ]
    inputs: Inputs = {"x": ("float32", ["n", 2]), "sizes": ("int64", [2])}
    model = make_model(nodes, inputs, ["y"], {"last": np.array(1)})
    good = {"x": floats(4, 2), "sizes": np.array([1, 3])}
    check(model, good, [{**good, "sizes": np.array(wrong)} for wrong in ([1, 1], [9, -5])])


def test_what_is_wrong_with_a_step_or_a_shape() -> None:
    names = ["start", "limit", "step"]
    nodes = [
        helper.make_node("Range", names, ["r"]),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ]
    inputs: Inputs = {name: ("int64", []) for name in names}
    inputs |= {"x": ("float32", ["n", 3]), "s": ("int64", [2])}
    model = make_model(nodes, inputs, ["r", "y"], output_types={"r": TensorProto.INT64})
    good = {"start": np.array(0), "limit": np.array(5), "step": np.array(2)}
    good |= {"x": floats(2, 3), "s": np.array([-1, 2])}
    compiled = relaxc.compile(model, threads=1, progress=False)
    np.testing.assert_array_equal(compiled(**good)[0], [0, 2, 4])
    for wrong, message in (
        ({"step": np.array(0)}, "Range: a step of zero never arrives"),
        ({"s": np.array([-1, -1])}, "Reshape: more than one -1 in the new shape"),
    ):
        with pytest.raises(relaxc.RunError, match=message):
            compiled(**{**good, **wrong})


def test_a_computed_size_of_0_does_not_copy() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["c"]),
        helper.make_node("Div", ["c", "two"], ["half"]),
        helper.make_node("Concat", ["half", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"two": np.array([2]), "rest": np.array([-1])}
    model = make_model(nodes, {"x": ("float32", ["c"])}, ["y"], constants)
    compiled = relaxc.compile(model, threads=1, progress=False)
    np.testing.assert_array_equal(compiled(floats(4)), floats(4).reshape(2, 2))
    with pytest.raises(relaxc.RunError, match="y_computed_0_would_copy_axis_0"):
        compiled(floats(1))


def test_slices_that_select_nothing_sensible() -> None:
    """A step of 0, an axis that does not exist or occurs twice; -(2**63) is a step."""
    inputs: Inputs = {"x": ("float32", ["n", 3])}
    inputs |= {name: ("int64", [2]) for name in ("starts", "ends", "axes", "steps")}

    def feed(axes: list[int], steps: list[int]) -> Feed:
        numbers = {"starts": [-1, 2], "ends": [-(2**63), -9], "axes": axes, "steps": steps}
        return {"x": floats(4, 3), **{name: np.array(given) for name, given in numbers.items()}}

    bad = [feed([0, 1], [-1, 0]), feed([0, 2], [-1, -1]), feed([-3, 0], [-1, -1])]
    bad += [feed([0, 0], [-1, -1]), feed([1, -1], [-1, -1])]
    check(model_of("Slice", inputs), feed([0, -1], [-(2**63), -2]), bad)


def test_pads_of_axes_that_do_not_exist() -> None:
    inputs: Inputs = {"x": ("float32", ["n", 3]), "pads": ("int64", [4]), "axes": ("int64", [2])}
    model = model_of("Pad", inputs)
    model.graph.node[0].input.insert(2, "")

    def feed(axes: list[int]) -> Feed:
        return {"x": floats(4, 3), "pads": np.array([1, 0, 0, 2]), "axes": np.array(axes)}

    check(model, feed([-1, 0]), [feed([2, 0]), feed([0, -3])])


# Operator, its inputs besides the vector "p", where "p" comes among them, a good one, and bad ones.
PLACES: list[tuple[str, Inputs, int, list[int], list[list[int]]]] = [
    ("ReduceSum", {"x": ("float32", ["n", 3])}, 1, [-1], [[2], [-3]]),
    ("CumSum", {"x": ("float32", ["n", 3])}, 1, [1], [[2], [-3]]),
    ("Squeeze", {"x": ("float32", ["n", 1])}, 1, [1], [[2], [-3]]),
    ("Unsqueeze", {"x": ("float32", ["n", 1])}, 1, [2], [[3], [-4]]),
    (
        "RoiAlign",
        {"x": ("float32", ["n", 1, 4, 4]), "rois": ("float32", [1, 4])},
        2,
        [1],
        [[2], [99]],
    ),
]


@pytest.mark.parametrize(
    ("op", "inputs", "place", "good", "bad"), PLACES, ids=[case[0] for case in PLACES]
)
def test_axes_and_images_that_do_not_exist(
    op: str, inputs: Inputs, place: int, good: list[int], bad: list[list[int]]
) -> None:
    model = model_of(op, {**inputs, "p": ("int64", [len(good)])})
    del model.graph.node[0].input[:]
    names = list(inputs)
    model.graph.node[0].input.extend([*names[:place], "p", *names[place:]])

    def feed(numbers: list[int]) -> Feed:
        shapes = {name: [2 if n == "n" else int(n) for n in s] for name, (_, s) in inputs.items()}
        feeds = {name: floats(*shape) for name, shape in shapes.items()}
        return {**feeds, "p": np.array(numbers)}

    check(model, feed(good), [feed(numbers) for numbers in bad])


def test_a_region_of_an_image_that_does_not_exist() -> None:
    inputs: Inputs = {"x": ("float32", ["n", 1, 4, 4]), "rois": ("float32", [1, 5])}
    model = model_of("MaxRoiPool", inputs, pooled_shape=[2, 2])

    def feed(image: float) -> Feed:
        return {"x": floats(2, 1, 4, 4), "rois": np.array([[image, 0, 0, 3, 3]], "float32")}

    check(model, feed(1), [feed(2), feed(1e9), feed(np.nan)])


def test_a_column_that_does_not_exist() -> None:
    inputs: Inputs = {"x": ("float32", ["n", 3]), "i": ("int64", [2])}
    model = model_of("ArrayFeatureExtractor", inputs)
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))

    def feed(*columns: int) -> Feed:
        return {"x": floats(2, 3), "i": np.array(columns)}

    check(model, feed(2, 0), [feed(3, 0), feed(0, 2**40)])


def test_an_element_that_a_sequence_does_not_have() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
        helper.make_node("SequenceAt", ["s", "p"], ["y"]),
    ]
    inputs: Inputs = {"x": ("float32", [3]), "z": ("float32", [3]), "p": ("int64", [])}
    model = make_model(nodes, inputs, ["y"])

    def feed(place: int) -> Feed:
        return {"x": floats(3), "z": floats(3) + 1, "p": np.array(place)}

    check(model, feed(-1), [feed(2), feed(-3), feed(2**40)])


def test_a_product_of_input_sizes_that_overflows() -> None:
    """No single size is absurd: 50000 ** 5 elements are."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Concat", ["n"] * 5, ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    ]
    model = make_model(nodes, {"x": ("float32", ["n"])}, ["y"])
    check(model, {"x": floats(2)}, [{"x": floats(50000)}, {"x": floats(8192)}])


def test_more_than_the_machine_has() -> None:
    compiled = relaxc.compile(
        model_of("ConstantOfShape", {"s": ("int64", [1])}), threads=1, progress=False
    )
    with pytest.raises(relaxc.RunError, match="more memory than there is") as caught:
        compiled(np.array([2**44]))
    assert caught.value.file == "test"
    assert compiled(np.array([3])).shape == (3,)


MISMATCHES: list[tuple[str, Inputs, list[tuple[int, ...]], list[list[tuple[int, ...]]], dict]] = [
    ("MatMul", {"a": ("float32", ["n", "k"]), "b": ("float32", ["l", "m"])},
     [(2, 3), (3, 4)], [[(2, 3), (2, 4)], [(2, 3), (5, 4)], [(2, 5000), (1, 4)]], {}),
    ("MatMul", {"a": ("float32", ["p", "n", 3]), "b": ("float32", ["q", 3, "m"])},
     [(2, 3, 3), (2, 3, 4)], [[(2, 3, 3), (3, 3, 4)]], {}),
    ("Gemm", {"a": ("float32", ["n", "k"]), "b": ("float32", ["m", "l"])},
     [(2, 3), (4, 3)], [[(2, 3), (4, 9)], [(2, 9), (4, 3)]], {"transB": 1}),
    ("Add", {"a": ("float32", ["n"]), "b": ("float32", ["m"])},
     [(3,), (3,)], [[(3,), (2,)], [(2,), (9999,)], [(0,), (2,)]], {}),
    ("Mul", {"a": ("float32", ["n", 4]), "b": ("float32", [2, "m"])},
     [(2, 4), (2, 4)], [[(3, 4), (2, 4)], [(2, 4), (2, 5)]], {}),
    ("Sum", {"a": ("float32", ["n"]), "b": ("float32", ["m"]), "c": ("float32", ["l"])},
     [(3,), (3,), (3,)], [[(3,), (3,), (2,)], [(2,), (3,), (3,)]], {}),
    ("Concat", {"a": ("float32", ["n", "k"]), "b": ("float32", ["m", "l"])},
     [(2, 3), (4, 3)], [[(2, 3), (4, 2)], [(2, 3), (4, 1)]], {"axis": 0}),
    ("Conv", {"a": ("float32", [1, "c", "h", 5]), "b": ("float32", [4, 3, 3, 3])},
     [(1, 3, 6, 5), (4, 3, 3, 3)],
     [[(1, 2, 6, 5), (4, 3, 3, 3)], [(1, 3, 1, 5), (4, 3, 3, 3)],
      [(1, 3, 2, 5), (4, 3, 3, 3)]], {}),
    ("ArgMax", {"a": ("float32", ["n", "k"])}, [(2, 3)], [[(2, 0)]], {"axis": 1}),
    ("PRelu", {"a": ("float32", ["n", "c"]), "b": ("float32", ["d"])},
     [(2, 3), (3,)], [[(2, 3), (2,)]], {}),
    ("ConvTranspose", {"a": ("float32", [1, "c", 3, 4]), "b": ("float32", ["d", "e", "f", 2])},
     [(1, 4, 3, 4), (4, 3, 2, 2)],
     [[(1, 4, 3, 4), (4, 3, 3, 2)], [(1, 5, 3, 4), (5, 3, 2, 2)], [(1, 4, 3, 4), (6, 3, 2, 2)]],
     {"group": 2, "kernel_shape": [2, 2]}),
    ("Squeeze", {"a": ("float32", ["n", 1, 3])}, [(2, 1, 3)], [[(1, 1, 3)]], {}),
    ("DepthToSpace", {"a": ("float32", [1, "c", 2, 2])},
     [(1, 8, 2, 2)], [[(1, 6, 2, 2)]], {"blocksize": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "good", "bad", "attributes"), MISMATCHES)
def test_sizes_that_do_not_fit_each_other(
    op: str,
    inputs: Inputs,
    good: list[tuple[int, ...]],
    bad: list[list[tuple[int, ...]]],
    attributes: dict,
) -> None:
    def feed(shapes: list[tuple[int, ...]]) -> Feed:
        return {name: floats(*shape) for name, shape in zip(inputs, shapes, strict=True)}

    model = model_of(op, inputs, **attributes)
    check(model, feed(good), [feed(shapes) for shapes in bad])


def test_the_error_says_which_sizes_the_call_had() -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("MatMul", ["a", "w"], ["product"]),
        helper.make_node("Reshape", ["a", "shape"], ["reshaped"]),
    ]
    inputs: Inputs = {"a": ("float32", ["B", 3]), "b": ("float32", ["C", 3])}
    inputs |= {"w": ("float32", ["K", 2]), "shape": ("int64", [2])}
    model = make_model(nodes, inputs, ["sum", "product", "reshaped"])
    compiled = relaxc.compile(model, threads=1, progress=False)
    good = {"a": floats(2, 3), "b": floats(2, 3), "w": floats(3, 2), "shape": np.array([3, 2])}
    for wrong, message in (
        ({"b": floats(5, 3)}, "B is 2 (axis 0 of 'a'), C is 5 (axis 0 of 'b')"),
        ({"w": floats(4, 2)}, "K is 4 (axis 0 of 'w')"),
        ({"shape": np.array([7, 2])}, "is 7 (element 0 of 'reshaped_sizes')"),
        ({"shape": np.array([-5, 2])}, "is -5 (element 0 of 'reshaped_sizes')"),
    ):
        with pytest.raises(relaxc.RunError, match=re.escape(message)):
            compiled(**{**good, **wrong})
    assert len(compiled(**good)) == 3


@pytest.mark.parametrize(
    ("shapes", "fixed"),
    [
        ([(1,), (5,)], ["n"]), ([(5,), (1,)], ["n"]), ([(0,), (1,)], ["n"]), ([(1,), (0,)], ["n"]),
        ([(1, 4), (3, 4)], ["n", 4]),
    ],
)  # fmt: skip
def test_sizes_without_relation_broadcast(shapes: list[tuple[int, ...]], fixed: list) -> None:
    """Each may be 1: it was stated to be the other's size."""
    other = ["m" if dim == "n" else dim for dim in fixed]
    model = model_of("Add", {"a": ("float32", fixed), "b": ("float32", other)})
    check(model, {"a": floats(*shapes[0]), "b": floats(*shapes[1])}, [])


def test_division_by_a_size_that_is_zero() -> None:
    """The processor traps it: reshaping an empty tensor to (-1, n) ended the process."""
    nodes = [
        helper.make_node("Shape", ["w"], ["n"]),
        helper.make_node("Concat", ["rest", "n"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1),
    ]
    inputs: Inputs = {"x": ("float32", ["a", "b"]), "w": ("float32", ["n"])}
    model = make_model(nodes, inputs, ["y"], {"rest": np.array([-1])})
    compiled = relaxc.compile(model, threads=1, progress=False)
    assert compiled(x=floats(2, 6), w=floats(4)).shape == (3, 4)
    assert compiled(x=floats(2, 0), w=floats(0)).shape == (0, 0)
    for x, w in ((floats(2, 3), floats(0)), (floats(2, 3), floats(4))):
        with pytest.raises(relaxc.RunError):
            compiled(x=x, w=w)


@pytest.mark.parametrize(
    ("attributes", "least"), [({"strides": [3]}, 4), ({"ceil_mode": 1, "strides": [2]}, 3)]
)
def test_a_window_that_does_not_fit(attributes: dict, least: int) -> None:
    """A pool over fewer elements than its window has no output; with ceil_mode a part will do."""
    model = model_of("MaxPool", {"x": ("float32", [1, 1, "n"])}, kernel_shape=[4], **attributes)
    check(model, {"x": floats(1, 1, least)}, [{"x": floats(1, 1, n)} for n in (least - 1, 0)])
