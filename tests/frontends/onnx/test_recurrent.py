"""RNN, GRU and LSTM in their options, compiled by relaxc, against ONNX Runtime (O13)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import relaxc
from frontends.errors import InvalidModel
from tests.frontends.onnx.run_model import make_model, run_reference

RNG = np.random.default_rng(11)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}


def _floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(dtype)


def check(
    kind: str,
    *,
    time: int = 5,
    batch: int = 3,
    inputs: int = 6,
    hidden: int = 10,
    bias: bool = True,
    lengths: list[int] | None = None,
    states: bool = False,
    peephole: bool = False,
    outputs: list[str] | None = None,
    weights_at_run_time: bool = False,
    dynamic: bool = False,
    opset: int = 17,
    tolerance: float = 2e-5,
    threads: int = 1,
    **attributes: Any,
) -> None:
    """Compare one node; weights are initializers unless said otherwise."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = bool(attributes.get("layout", 0))
    g = GATES[kind] * hidden
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    x = _floats(*((batch, time) if batch_first else (time, batch)), inputs)
    given: dict[str, np.ndarray | None] = {
        "x": x,
        "w": _floats(directions, g, inputs),
        "r": _floats(directions, g, hidden),
        "b": _floats(directions, 2 * g) if bias else None,
        "lengths": None if lengths is None else np.asarray(lengths, "int32"),
        "h": _floats(*state) if states else None,
    }
    if kind == "LSTM":
        given["c"] = _floats(*state) if states else None
        given["p"] = _floats(directions, 3 * hidden) if peephole else None
    names = [name if value is not None else "" for name, value in given.items()]
    while not names[-1]:
        names.pop()
    results = outputs or ["y", "yh", "yc"][: 1 + STATES[kind]]
    at_run_time = ("x", "lengths", "h", "c") + (("w", "r", "b") if weights_at_run_time else ())
    feeds = {n: v for n, v in given.items() if v is not None and n in at_run_time}
    model = make_model(
        [helper.make_node(kind, names, results, hidden_size=hidden, **attributes)],
        {name: (value.dtype, value.shape) for name, value in feeds.items()},
        [name for name in results if name],
        {n: v for n, v in given.items() if v is not None and n not in feeds},
        opset=opset,
    )
    options: dict[str, Any] = {}
    if dynamic:
        options["dynamic_shapes"] = {"x": {0: "time", 1: "batch"}}
    compiled = relaxc.compile(model, threads=threads, progress=False, **options)
    got = compiled(**feeds)
    got = got if isinstance(got, (tuple, list)) else [got]
    for mine, want in zip(got, run_reference(model, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(mine, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_with_states_and_lengths(kind: str, direction: str) -> None:
    check(kind, direction=direction, states=True, lengths=[5, 2, 0], peephole=True)


@pytest.mark.parametrize("hidden", [1, 8, 33])
@pytest.mark.parametrize("kind", GATES)
def test_hidden_sizes_that_fill_no_slice(kind: str, hidden: int) -> None:
    check(kind, hidden=hidden, batch=7, bias=False)


@pytest.mark.parametrize("kind", GATES)
def test_weights_at_run_time(kind: str) -> None:
    check(kind, weights_at_run_time=True, direction="bidirectional", states=True)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_reset_before_and_after_the_product(direction: str) -> None:
    for after in (0, 1):
        check("GRU", linear_before_reset=after, direction=direction, states=True, hidden=24)


def test_reset_after_a_product_without_a_bias() -> None:
    check("GRU", linear_before_reset=1, bias=False)


def test_clip_and_coupled_gates() -> None:
    check("LSTM", clip=0.4, input_forget=1, peephole=True, states=True)
    check("GRU", clip=0.3)
    check("RNN", clip=0.2)


@pytest.mark.parametrize(
    ("names", "alpha", "beta"),
    [
        (["Relu", "LeakyRelu"], [0.2], []),
        (["Affine", "ScaledTanh"], [0.7, 0.9], [0.1, 1.1]),
        (["HardSigmoid", "Elu"], [0.3, 0.8], [0.4]),
        (["Softsign", "Softplus"], [], []),
        (["ThresholdedRelu", "Tanh"], [0.25], []),
    ],
)
def test_activations(names: list[str], alpha: list[float], beta: list[float]) -> None:
    parameters: dict[str, Any] = {}
    if alpha:
        parameters["activation_alpha"] = alpha
    if beta:
        parameters["activation_beta"] = beta
    check("RNN", direction="bidirectional", activations=names, **parameters)


def test_activations_of_gates() -> None:
    check("LSTM", activations=["HardSigmoid", "Softsign", "Relu"], peephole=True)
    names = ["Sigmoid", "Tanh", "HardSigmoid", "Softsign"]
    check("GRU", direction="bidirectional", activations=names)
    check("LSTM", direction="bidirectional", activations=["Sigmoid", "Tanh", "Softsign"] * 2)


@pytest.mark.parametrize("outputs", [["y"], ["", "yh"], ["", "", "yc"], ["y", "", "yc"]])
def test_any_outputs(outputs: list[str]) -> None:
    check("LSTM", outputs=outputs)


@pytest.mark.parametrize("kind", GATES)
def test_symbolic_batch_and_sequence(kind: str) -> None:
    check(kind, dynamic=True, direction="bidirectional", batch=4, time=6)
    check(kind, dynamic=True, batch=1, hidden=16)


@pytest.mark.parametrize(("time", "batch"), [(1, 1), (1, 5), (9, 2)])
def test_short_and_long(time: int, batch: int) -> None:
    check("LSTM", time=time, batch=batch, hidden=16)


def test_threads_share_the_slices_of_a_step() -> None:
    check("LSTM", hidden=256, batch=2, time=4, threads=2, tolerance=1e-4)


@pytest.mark.parametrize("kind", GATES)
def test_batch_first(kind: str) -> None:
    """ONNX Runtime has no layout 1, so the same layer with layout 0 is the reference."""
    x, hidden = _floats(4, 3, 5), 10
    g = GATES[kind] * hidden
    fixed = {"w": _floats(2, g, 5), "r": _floats(2, g, hidden), "b": _floats(2, 2 * g)}
    h = _floats(2, 3, hidden)
    results = ["y", "yh", "yc"][: 1 + STATES[kind]]
    found = []
    for layout in (0, 1):
        feeds = {
            "x": np.ascontiguousarray(x.swapaxes(0, 1)) if layout else x,
            "h": np.ascontiguousarray(h.swapaxes(0, 1)) if layout else h,
        }
        node = helper.make_node(
            kind, ["x", "w", "r", "b", "", "h"], results,
            hidden_size=hidden, direction="bidirectional", layout=layout,
        )  # fmt: skip
        shapes = {name: ("float32", value.shape) for name, value in feeds.items()}
        model = make_model([node], shapes, results, fixed)
        if layout:
            found = relaxc.compile(model, threads=1, progress=False)(**feeds)
        else:
            expected = run_reference(model, feeds)
    y, *last = expected
    np.testing.assert_allclose(found[0], y.transpose(2, 0, 1, 3), rtol=2e-5, atol=2e-5)
    for mine, want in zip(found[1:], last, strict=True):
        np.testing.assert_allclose(mine, want.transpose(1, 0, 2), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-5), ("float16", 2e-3)])
def test_other_float_types(dtype: str, tolerance: float) -> None:
    """ONNX Runtime computes in float32 only, which is the reference."""
    x, w, r = (_floats(*s, dtype=dtype) for s in ((3, 2, 4), (1, 20, 4), (1, 20, 5)))
    other, single = [
        make_model(
            [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5)],
            {"x": (kind, x.shape)},
            ["y"],
            {"w": w.astype(kind), "r": r.astype(kind)},
            output_types={"y": helper.np_dtype_to_tensor_dtype(np.dtype(kind))},
        )
        for kind in (dtype, "float32")
    ]
    got = relaxc.compile(other, threads=1, progress=False)(x=x)
    (want,) = run_reference(single, {"x": x.astype("float32")})
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_first_opset_and_nan() -> None:
    check("RNN", opset=7)
    x = _floats(3, 1, 4)
    x[1, 0, 2] = np.nan
    model = make_model(
        [helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=3, activations=["Relu"])],
        {"x": ("float32", x.shape)},
        ["y"],
        {"w": _floats(1, 3, 4), "r": _floats(1, 3, 3)},
    )
    y = relaxc.compile(model, threads=1, progress=False)(x=x)
    assert not np.isnan(y[0]).any()
    assert np.isnan(y[1:]).all()


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_dynamic_quantized_lstm(kind: str, per_column: bool) -> None:
    time, batch, inputs, hidden, directions = 6, 2, 12, 20, 2
    # Without VNNI, ONNX Runtime saturates sums of two products with weights beyond 7 bits.
    low, high = (-63, 64) if kind == "int8" else (65, 192)
    columns = (directions, 4 * hidden) if per_column else (directions,)
    zero = np.full(columns, 0 if kind == "int8" else 128, kind)
    fixed = {
        "w": RNG.integers(low, high, (directions, inputs, 4 * hidden)).astype(kind),
        "r": RNG.integers(low, high, (directions, hidden, 4 * hidden)).astype(kind),
        "b": _floats(directions, 8 * hidden),
        "ws": (RNG.random(columns) * 0.004 + 0.002).astype("float32"),
        "wz": zero,
        "rs": (RNG.random(columns) * 0.004 + 0.002).astype("float32"),
        "rz": zero,
    }
    x = _floats(time, batch, inputs)
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "yh", "yc"],
        domain="com.microsoft", hidden_size=hidden, direction="bidirectional",
    )  # fmt: skip
    model = make_model(
        [node], {"x": ("float32", x.shape)}, ["y", "yh", "yc"], fixed, domains={"com.microsoft": 1}
    )
    got = relaxc.compile(model, threads=1, progress=False)(x=x)
    for mine, want in zip(got, run_reference(model, {"x": x}), strict=True):
        # One level of rounding is 1/255 of a state's range; a wrong scale would show at once.
        np.testing.assert_allclose(mine, want, rtol=1e-2, atol=5e-3)


def test_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InvalidModel, match="activation 'Gelu'"):
        relaxc.compile(
            make_model(
                [helper.make_node("RNN", ["x", "w", "r"], ["y"], activations=["Gelu"])],
                {"x": ("float32", (2, 1, 3))},
                ["y"],
                {"w": _floats(1, 4, 3), "r": _floats(1, 4, 4)},
            ),
            progress=False,
        )
