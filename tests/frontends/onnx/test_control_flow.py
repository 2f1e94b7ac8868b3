"""If, Loop and Scan, compiled end to end, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import assert_like_reference, make_model, run_reference

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")


def graph(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    inputs: Sequence[Any] = (),
    weights: dict[str, np.ndarray] | None = None,
    types: dict[str, int] | None = None,
) -> onnx.GraphProto:
    """Return a subgraph; its tensors are float32 unless `types` says otherwise."""
    kinds = types or {}

    def declare(name: str, shape: Any = None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kinds.get(name, FLOAT), shape)

    given = [declare(item) if isinstance(item, str) else declare(*item) for item in inputs]
    constants = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "body", given, [declare(o) for o in outputs], constants)


def loop_body(nodes: list[onnx.NodeProto], outputs: list[str], condition: str = "") -> Any:
    """Return a body with one state `s`; it goes on for ever unless `condition` is named."""
    if not condition:
        nodes, condition = [*nodes, node("Identity", ["on"], ["go"])], "go"
    return graph(
        nodes,
        [condition, *outputs],
        [("i", []), ("on", []), "s"],
        types={"i": INT64, "on": BOOL, condition: BOOL},
    )


def check(model: onnx.ModelProto, *feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> Any:
    """Compile once, run on each of the feeds, compare."""
    compiled = relaxc.compile(model, threads=1, progress=False)
    for feed in feeds:
        results = compiled(**feed)
        results = results if isinstance(results, tuple) else (results,)
        for got, want in zip(results, run_reference(model, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return compiled


def conditional(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    """Return y = 2x, z = If(c), o = -z."""
    return make_model(
        [
            node("Add", ["x", "x"], ["y"]),
            node("If", ["c"], ["z"], then_branch=then, else_branch=other),
            node("Neg", ["z"], ["o"]),
        ],
        {"x": ("float32", ["n", 4]), "c": ("bool", [])},
        ["o"],
    )


BOTH = [{"x": X, "c": np.array(c)} for c in (True, False)]


def test_branches_reshape_twice() -> None:
    # Storage that only one branch allocates must not be planned for both (case P2).
    def reshaped(operator: str, name: str) -> onnx.GraphProto:
        return graph(
            [
                node("Reshape", ["y", f"{name}_a"], [f"{name}1"]),
                node(operator, [f"{name}1"], [f"{name}2"]),
                node("Reshape", [f"{name}2", f"{name}_b"], [f"{name}3"]),
            ],
            [f"{name}3"],
            weights={f"{name}_a": np.array([-1]), f"{name}_b": np.array([-1, 4])},
        )

    check(conditional(reshaped("Relu", "t"), reshaped("Abs", "e")), *BOTH)


def test_branches_of_different_sizes() -> None:
    then = graph([node("Mul", ["y", "y"], ["t"])], ["t"])
    other = graph([node("Concat", ["y", "y"], ["e"], axis=0)], ["e"])
    check(conditional(then, other), *BOTH)


def test_branches_with_equal_code_and_other_weights() -> None:
    # Functions that differ in the numbers of a constant only must stay two (case P4, O15).
    def add(name: str, number: float) -> onnx.GraphProto:
        weights = {f"{name}w": np.full((4,), number, "float32")}
        return graph([node("Add", ["y", f"{name}w"], [name])], [name], weights=weights)

    check(conditional(add("t", 1.0), add("e", 2.0)), *BOTH)


def test_branch_that_returns_an_outer_value_or_a_constant() -> None:
    then = graph([node("Identity", ["x"], ["t"])], ["t"])
    other = graph(
        [node("Identity", ["w"], ["e"])], ["e"], weights={"w": np.ones((2, 4), "float32")}
    )
    compiled = check(conditional(then, other), *BOTH)
    compiled(x=X, c=np.array(False))[:] = 7  # the result is the caller's own
    check_again = compiled(x=X, c=np.array(False))
    assert (check_again == -1).all()


def test_ranks_that_differ_are_refused() -> None:
    then = graph([node("Identity", ["y"], ["t"])], ["t"])
    other = graph([node("ReduceSum", ["y"], ["e"], keepdims=0)], ["e"])
    with pytest.raises(UnsupportedOperator, match="different ranks"):
        relaxc.compile(conditional(then, other), threads=1, progress=False)


def squeezed_or_not(condition: list[onnx.NodeProto], given: dict[str, Any]) -> onnx.ModelProto:
    """Return relu(x), squeezed if `c` holds, plus a vector; x has the shape [2, n]."""
    return make_model(
        [
            *condition,
            node("Relu", ["x"], ["y"]),
            node("If", ["c"], ["z"],
                 then_branch=graph([node("Squeeze", ["y", "one"], ["t"])], ["t"]),
                 else_branch=graph([node("Identity", ["y"], ["e"])], ["e"])),
            node("Add", ["z", "w"], ["o"]),
        ],
        {"x": ("float32", [2, "n"]), **given},
        ["o"],
        {"one": np.array([1]), "w": np.array([1, 2], "float32")},
    )  # fmt: skip


def test_a_squeeze_that_depends_on_a_symbolic_size() -> None:
    # PyTorch's export of `x.squeeze(1)`: silero-vad is full of it.
    sizes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Equal", ["n", "one"], ["c"]),
    ]
    compiled = check(squeezed_or_not(sizes, {}), {"x": X[:2, :1]})
    with pytest.raises(relaxc.RunError, match="n == 1; n is 2.*takes_the_branch_with_squeeze"):
        compiled(x=X[:2, :2])
    declined = str(compiled.report.declined)
    assert "only the branch with Squeeze is compiled" in declined


def test_a_squeeze_that_depends_on_data() -> None:
    """Either branch may be meant: the ranks differ."""
    with pytest.raises(UnsupportedOperator, match="different ranks"):
        import_onnx(squeezed_or_not([], {"c": ("bool", [])}))


STEP = [
    node("Cast", ["i"], ["fi"], to=FLOAT),
    node("Mul", ["s", "w"], ["s1"]),
    node("Add", ["s1", "fi"], ["so"]),
    node("Neg", ["so"], ["row"]),
]


def counted_loop(count: int | None) -> onnx.ModelProto:
    inputs: dict[str, Any] = {"x": ("float32", ["n", 4])}
    weights = {"w": np.array(0.9, "float32")}
    if count is None:
        inputs["m"] = ("int64", [])
    else:
        weights["m"] = np.array(count)
    body = loop_body(list(STEP), ["so", "row"])
    return make_model(
        [node("Loop", ["m", "", "x"], ["o", "rows"], body=body)], inputs, ["o", "rows"], weights
    )


@pytest.mark.parametrize("count", [3, 101])
def test_loop_of_known_length(count: int) -> None:
    compiled = check(counted_loop(count), {"x": X})
    assert compiled.outputs[1].shape[0] == count


def test_loop_of_length_known_at_run_time() -> None:
    model = counted_loop(None)
    compiled = check(model, *({"x": X, "m": np.array(m)} for m in (1, 2, 16, 17, 300)))
    last, rows = compiled(x=X, m=np.array(0))
    assert rows.shape == (0, 3, 4)
    np.testing.assert_array_equal(last, X)


def while_loop(limit: int | None) -> onnx.ModelProto:
    body = loop_body(
        [
            node("Mul", ["s", "w"], ["so"]),
            node("ReduceMax", ["so"], ["top"], keepdims=0),
            node("Less", ["top", "bound"], ["below"]),
        ],
        ["so"],
        "below",
    )
    weights = {"w": np.array(1.01, "float32")}
    if limit is not None:
        weights["m"] = np.array(limit)
    name = "" if limit is None else "m"
    return make_model(
        [node("Loop", [name, "c", "x"], ["o"], body=body)],
        {"x": ("float32", ["n", 4]), "c": ("bool", []), "bound": ("float32", [])},
        ["o"],
        weights,
    )


@pytest.mark.parametrize("limit", [None, 100, 2**62])
def test_loop_that_a_condition_ends(limit: int | None) -> None:
    feeds = [
        {"x": abs(X), "c": np.array(c), "bound": np.array(b, "float32")}
        for c, b in ((True, 0), (True, 2.5), (True, 1e5), (False, 1e5))
    ]
    check(while_loop(limit), *feeds, tolerance=1e-4)


def test_many_steps_do_not_overflow_the_stack() -> None:
    body = loop_body([node("Add", ["s", "w"], ["so"])], ["so"])
    model = make_model(
        [node("Loop", ["m", "", "x"], ["o"], body=body)],
        {"x": ("float32", []), "m": ("int64", [])},
        ["o"],
        {"w": np.array(1, "float32")},
    )
    compiled = relaxc.compile(model, threads=1, progress=False)
    assert compiled(x=np.zeros((), "float32"), m=np.array(100_000)) == 100_000


def test_state_that_grows() -> None:
    body = loop_body([node("Concat", ["s", "y"], ["so"], axis=0)], ["so"])
    model = make_model(
        [node("Relu", ["x"], ["y"]), node("Loop", ["m", "", "x"], ["o"], body=body)],
        {"x": ("float32", ["n", 4]), "m": ("int64", [])},
        ["o"],
    )
    check(model, *({"x": X, "m": np.array(m)} for m in (0, 1, 20)))


def test_loop_that_never_ends_is_refused() -> None:
    body = loop_body([node("Relu", ["s"], ["so"])], ["so"])
    model = make_model(
        [node("Loop", ["", "", "x"], ["o"], body=body)], {"x": ("float32", [4])}, ["o"]
    )
    with pytest.raises(InvalidModel, match="never ends"):
        relaxc.compile(model, threads=1, progress=False)


def test_control_flow_nests() -> None:
    then = graph([node("Add", ["s", "y"], ["r1"])], ["r1"])
    other = graph([node("Sub", ["s", "w"], ["r2"])], ["r2"])
    body = loop_body(
        [
            node("ReduceSum", ["s"], ["total"], keepdims=0),
            node("Less", ["total", "bound"], ["small"]),
            node("If", ["small"], ["so"], then_branch=then, else_branch=other),
        ],
        ["so"],
    )
    looped = graph([node("Loop", ["m", "", "x"], ["t"], body=body)], ["t"])
    model = make_model(
        [
            node("Relu", ["x"], ["y"]),
            node("If", ["c"], ["o"], then_branch=looped, else_branch=graph(
                [node("Identity", ["x"], ["e"])], ["e"])),
        ],
        {"x": ("float32", ["n", 4]), "c": ("bool", []), "m": ("int64", []),
         "bound": ("float32", [])},
        ["o"],
        {"w": np.array(0.3, "float32")},
    )  # fmt: skip
    feeds = [
        {"x": X, "c": np.array(c), "m": np.array(m), "bound": np.array(3, "float32")}
        for c, m in ((True, 0), (True, 30), (False, 3))
    ]
    check(model, *feeds)


@pytest.mark.parametrize("length", [6, 100, "t"])
def test_scan_axes_and_directions(length: int | str) -> None:
    body = graph(
        [node("Add", ["s", "a_"], ["so"]), node("Mul", ["so", "b_"], ["row"])],
        ["so", "row"],
        ["s", "a_", "b_"],
    )
    scan = node(
        "Scan", ["s0", "a", "b"], ["o", "rows"], body=body, num_scan_inputs=2,
        scan_input_axes=[0, 1], scan_input_directions=[0, 1], scan_output_axes=[1],
        scan_output_directions=[1],
    )  # fmt: skip
    model = make_model(
        [scan],
        {"s0": ("float32", [4]), "a": ("float32", [length, 4]), "b": ("float32", [4, length])},
        ["o", "rows"],
    )
    for steps in (1, 33) if length == "t" else (length,):
        a = np.random.default_rng(1).standard_normal((int(steps), 4)).astype("float32")
        check(model, {"s0": X[0], "a": a, "b": a.T.copy()}, tolerance=1e-4)


@pytest.mark.parametrize("known", [True, False])
def test_scan_of_a_batch_whose_entries_differ_in_length(known: bool) -> None:
    """Opset 8: a second input is scanned backward, from the last row that its entry has."""
    body = graph(
        [node("Add", ["s", "a_"], ["so"]), node("Mul", ["so", "b_"], ["row"])],
        ["so", "row"],
        [("s", [2]), ("a_", [2]), ("b_", [2])],
    )
    scan = node("Scan", ["n", "s0", "a", "b"], ["o", "rows"], body=body, num_scan_inputs=2,
                directions=[0, 1])  # fmt: skip
    lengths = {"n": np.array([4, 1, 3], "int64")}
    a, b = np.random.default_rng(1).standard_normal((2, 3, 4, 2)).astype("float32")
    shapes = {"s0": ("float32", [3, 2]), "a": ("float32", [3, 4, 2]), "b": ("float32", [3, 4, 2])}
    feeds = {"s0": X[:, :2].copy(), "a": a, "b": b}
    if known:
        check(make_model([scan], shapes, ["o", "rows"], lengths, opset=8), feeds)
        lengths["n"][1] = 5
        with pytest.raises(InvalidModel, match="a sequence length of 5 for 4 rows"):
            relaxc.compile(make_model([scan], shapes, ["o", "rows"], lengths, opset=8))
        return
    model = make_model([scan], {"n": ("int64", [3]), **shapes}, ["o", "rows"], opset=8)
    compiled = check(model, feeds | lengths, feeds | {"n": np.array([2, 4, 4], "int64")})
    with pytest.raises(relaxc.RunError, match="lengths"):
        compiled(**feeds, n=np.array([2, 5, 4], "int64"))


def test_branches_that_are_equal() -> None:
    """Each has the same weight under the same name, and reads the same tensor from outside."""
    weight = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")

    def branch() -> onnx.GraphProto:
        result = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["z"])]
        return helper.make_graph(nodes, "branch", [], [result], [weight])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(), else_branch=branch())
    model = make_model([node], {"c": ("bool", []), "x": ("float32", [2, 4])}, ["y"])
    for condition in (True, False):
        x = np.arange(8, dtype="float32").reshape(2, 4)
        assert_like_reference(model, {"c": np.asarray(condition), "x": x})
