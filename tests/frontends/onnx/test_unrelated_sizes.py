"""Operators of several inputs, each dimension of each input a symbol of its own.

Nothing says before the run which sizes are equal, and which are 1 and broadcast. A family of nodes
is one model, compiled once; each node is compared alone, with equal sizes and then with ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.run_model import built, reference_session

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(0)
Array = np.ndarray
Known = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op: The operator.
        inputs: Of equal sizes; None where an optional one is left out.
        ones: The inputs, by place, that have sizes of 1 in the second run.
        known: Axes of inputs, by place, whose sizes the model states.
        outputs: How many outputs.
        domain: The operator's.
        by: "ort" or "onnx", the reference.
        attributes: Of the node.
    """

    op: str
    inputs: tuple[Array | None, ...]
    ones: dict[int, Array] = field(default_factory=dict)
    known: Known = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    by: str = "ort"
    attributes: dict[str, Any] = field(default_factory=dict)

    def run_inputs(self, with_ones: bool) -> tuple[Array | None, ...]:
        """Return the inputs of one of the two runs."""
        changed = self.ones if with_ones else {}
        return tuple(changed.get(place, array) for place, array in enumerate(self.inputs))


def case(
    op: str, *inputs: Array | None, ones: dict[int, Array] | None = None,
    known: Known | None = None, outputs: int = 1, domain: str = "", by: str = "ort",
    **attributes: Any,
) -> Case:  # fmt: skip
    return Case(op, inputs, ones or {}, known or {}, outputs, domain, by, attributes)


def f(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), "float32")


def i(dtype: str, *shape: int, low: int = 1, high: int = 5) -> Array:
    return np.asarray(RNG.integers(low, high, shape), dtype)


def positive(*shape: int) -> Array:
    return np.asarray(np.abs(f(*shape)) + 0.1, "float32")


ELEMENTWISE = [
    case("Add", f(2, 3), f(2, 3), ones={0: f(1, 3), 1: f(2, 1)}),
    case("Sub", f(2, 3), f(3), ones={0: f(2, 1)}),
    case("Div", i("int64", 2, 3), i("int64", 2, 3), ones={1: i("int64", 1, 3)}),
    case("Pow", positive(2, 3), f(2, 3), ones={0: positive(1, 1)}),
    case("Mod", i("int32", 2, 3), i("int32", 3), ones={1: i("int32", 1)}),
    case("And", f(2, 3) > 0, f(2, 3) > 0, ones={0: f(2, 1) > 0}),
    case("Max", f(2, 3), f(2, 3), f(3), ones={0: f(1, 3), 1: f(2, 1), 2: f(1)}),
    case("Mean", f(2, 3), f(2, 3), f(2, 1), ones={0: f(1, 3)}),
    case("Where", f(2, 3) > 0, f(2, 3), f(3), ones={0: f(1, 1) > 0, 1: f(2, 1)}),
    case("PRelu", f(2, 3), f(2, 3), ones={1: f(1, 3)}),
    case("Expand", f(2, 3), np.array([2, 3]), ones={0: f(1, 3), 1: np.array([4, 1])},
         known={1: (0,)}),
    case("BiasGelu", f(2, 4, 3), f(3), domain=MICROSOFT),
    case("FastGelu", f(2, 4, 3), f(3), domain=MICROSOFT),
]  # fmt: skip

PRODUCTS = [
    case("MatMul", f(2, 3, 4), f(2, 4, 5), ones={0: f(1, 3, 4)}),
    case("MatMul", f(2, 3, 4), f(2, 4, 5), ones={1: f(1, 4, 5)}),
    case("MatMul", f(4), f(2, 4, 5)),
    case("Gemm", f(3, 4), f(4, 5), f(3, 5), ones={2: f(1, 5)}),
    case("Gemm", f(3, 4), f(5, 4), f(5), ones={2: f(1)}, transB=1, beta=0.5, alpha=2.0),
    case("Einsum", f(2, 3, 4), f(2, 4, 5), ones={0: f(1, 3, 4)}, equation="bij,bjk->bik"),
    case("Einsum", f(2, 3, 4), f(2, 4, 5), ones={1: f(1, 4, 5)}, equation="...ij,...jk->...ik"),
    case("MatMulInteger", i("uint8", 3, 4), i("int8", 4, 5), i("uint8"), i("int8", 5),
         ones={3: i("int8", 1)}),
    case("MatMulInteger", i("uint8", 2, 3, 4), i("uint8", 2, 4, 5),
         ones={0: i("uint8", 1, 3, 4)}),
    case("QLinearMatMul", i("uint8", 3, 4), positive(), i("uint8"), i("uint8", 4, 5), positive(),
         i("uint8"), positive(), i("uint8")),
    case("FusedMatMul", f(2, 3, 4), f(2, 5, 4), ones={0: f(1, 3, 4)}, transB=1, alpha=0.5,
         domain=MICROSOFT),
    case("MatMulIntegerToFloat", i("uint8", 3, 4), i("uint8", 4, 5), positive(), positive(5),
         i("uint8"), i("uint8", 5), f(5), domain=MICROSOFT),
]  # fmt: skip

KERNEL = {1: (2, 3)}
CONVOLUTIONS = [
    case("Conv", f(2, 3, 4, 4), f(5, 3, 2, 2), f(5), known=KERNEL),
    case("ConvTranspose", f(2, 3, 4, 4), f(3, 5, 2, 2), f(5), known=KERNEL),
    case("ConvInteger", i("uint8", 2, 3, 4, 4), i("uint8", 5, 3, 2, 2), i("uint8"), known=KERNEL),
    case("QLinearConv", i("uint8", 2, 3, 4, 4), positive(), i("uint8"), i("uint8", 5, 3, 2, 2),
         positive(), i("uint8"), positive(), i("uint8"), i("int32", 5), known={3: (2, 3)}),
    case("DeformConv", f(2, 3, 4, 4), f(5, 3, 2, 2), f(2, 8, 3, 3), f(5), f(2, 4, 3, 3),
         known={1: (2, 3)}),
    case("BatchNormalization", f(2, 3, 4), f(3), f(3), f(3), positive(3)),
    case("InstanceNormalization", f(2, 3, 4), f(3), f(3)),
    case("LayerNormalization", f(2, 3, 4), f(4), f(4), ones={1: f(1)}),
    case("LayerNormalization", f(2, 3, 4), f(3, 4), f(3, 4), ones={2: f(1, 4)}, axis=1),
    case("SkipLayerNormalization", f(2, 3, 4), f(2, 3, 4), f(4), f(4), f(4),
         ones={1: f(1, 3, 4)}, domain=MICROSOFT),
    case("SkipSimplifiedLayerNormalization", f(2, 3, 4), f(2, 3, 4), f(4), domain=MICROSOFT),
]  # fmt: skip

INDEXED = [
    case("Concat", f(2, 3), f(2, 4), axis=1),
    case("Gather", f(3, 4), i("int64", 2, 2, low=0, high=3)),
    case("GatherElements", f(3, 4), i("int64", 2, 4, low=0, high=3), axis=0),
    case("GatherND", f(2, 3, 4), i("int64", 2, 1, low=0, high=3), known={1: (1,)}, batch_dims=1),
    case("ScatterElements", f(3, 4), i("int64", 2, 4, low=0, high=3), f(2, 4), axis=0,
         reduction="add"),
    case("ScatterND", f(3, 4), np.array([[2], [0]]), f(2, 4), known={1: (1,)}),
    case("ReverseSequence", f(3, 2, 4), np.array([2, 3])),
    case("Compress", f(3, 4), np.array([True, False, True]), axis=0),
    case("OneHot", i("int64", 3, low=0), np.array(5), f(2), known={2: (0,)}),
    case("QuantizeLinear", f(2, 3, 4), positive(3), i("uint8", 3), axis=1),
    case("DequantizeLinear", i("int8", 2, 3, 4), positive(3), i("int8", 3), axis=1),
    case("NegativeLogLikelihoodLoss", f(2, 3, 4), i("int64", 2, 4, low=0, high=3), f(3)),
    case("SoftmaxCrossEntropyLoss", f(2, 3, 4), i("int64", 2, 4, low=0, high=3), f(3)),
]  # fmt: skip

SAMPLED = [
    case("GridSample", f(2, 3, 4, 4), f(2, 3, 2, 2), known={1: (3,)}),
    case("RoiAlign", f(2, 3, 4, 4), positive(3, 4), np.array([1, 0, 1]), known={1: (1,)},
         output_height=2, output_width=2, sampling_ratio=2, by="onnx"),
    case("NonMaxSuppression", positive(1, 5, 4), positive(1, 2, 5), np.array([2]),
         known={0: (2,), 2: (0,)}),
    case("MaxUnpool", f(1, 2, 2, 2), np.array([[[[0, 3], [8, 11]], [[17, 19], [25, 27]]]]),
         kernel_shape=[2, 2], strides=[2, 2]),
    case("Resize", f(1, 2, 3, 4), None, np.array([1, 1, 2, 1.5], "float32"), mode="nearest"),
    case("Resize", f(1, 2, 3, 4), None, None, np.array([1, 2, 5, 3]), mode="linear", by="onnx"),
    case("TensorScatter", f(2, 3, 5, 4), f(2, 3, 2, 4), np.array([0, 3]), by="onnx"),
]  # fmt: skip

_MASK = f(2, 2, 3, 5)
_CACHED = (f(2, 2, 3, 4), f(2, 2, 2, 4), f(2, 2, 2, 4), f(3, 5), f(2, 2, 3, 4), f(2, 2, 3, 4))
ATTENTION = [
    case("Attention", f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4), _MASK, by="onnx",
         ones={3: f(1, 2, 1, 5)}, known={0: (1, 3), 1: (1, 3), 2: (1, 3)}),
    case("Attention", *_CACHED, by="onnx", ones={3: f(1, 5)}, outputs=3,
         known={place: (1, 3) for place in (0, 1, 2, 4, 5)}),
    case("RotaryEmbedding", f(2, 2, 3, 4), f(6, 2), f(6, 2), i("int64", 2, 3), by="onnx",
         known={0: (1, 3), 1: (1,), 2: (1,)}),
    case("MultiHeadAttention", f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), None, None, f(2, 2, 3, 5),
         ones={5: f(1, 2, 3, 5)}, num_heads=2, domain=MICROSOFT,
         known={0: (2,), 1: (2,), 2: (2,)}),
]  # fmt: skip

RECURRENT = [
    case("LSTM", f(3, 2, 4), f(1, 20, 4), f(1, 20, 5), f(1, 40), np.array([3, 1], "int32"),
         f(1, 2, 5), f(1, 2, 5), f(1, 15), outputs=3, hidden_size=5,
         known={0: (2,)}),
    case("GRU", f(3, 2, 4), f(1, 15, 4), f(1, 15, 5), f(1, 30), np.array([2, 3], "int32"),
         f(1, 2, 5), outputs=2, hidden_size=5, known={0: (2,)}),
]  # fmt: skip

FAMILIES = {
    "elementwise": ELEMENTWISE,
    "products": PRODUCTS,
    "convolutions": CONVOLUTIONS,
    "indexed": INDEXED,
    "sampled": SAMPLED,
    "attention": ATTENTION,
    "recurrent": RECURRENT,
}


def named(number: int, inputs: tuple[Array | None, ...]) -> dict[str, Array]:
    """Return the inputs of node `number` of a model by name."""
    return {f"x{number}_{k}": array for k, array in enumerate(inputs) if array is not None}


def build(cases: list[Case]) -> onnx.ModelProto:
    """Return a model of all nodes, with a symbol for each size that is not known."""
    nodes, inputs, outputs = [], [], []
    for number, one in enumerate(cases):
        names = ["" if a is None else f"x{number}_{k}" for k, a in enumerate(one.inputs)]
        results = [f"y{number}_{k}" for k in range(one.outputs)]
        nodes.append(helper.make_node(one.op, names, results, domain=one.domain, **one.attributes))
        for place, array in enumerate(one.inputs):
            if array is None:
                continue
            known = one.known.get(place, ())
            shape = [
                size if axis in known else f"n{number}_{place}_{axis}"
                for axis, size in enumerate(array.shape)
            ]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(names[place], kind, shape))
        outputs += [helper.make_empty_tensor_value_info(name) for name in results]
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(nodes, "unrelated", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


Run = Callable[[dict[str, Array]], list[Array]]


def reference(one: Case) -> Run:
    """Return what runs the node alone; its inputs are called x0_0, x0_1, ..."""
    model = build([one])
    if one.by == "onnx":
        evaluator = ReferenceEvaluator(model)
        return lambda feeds: list(evaluator.run(None, feeds))
    return reference_session(model)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> tuple[list[Case], Run]:
    """Return the nodes of a family, and what runs all of them, compiled once."""
    cases = FAMILIES[request.param]
    return cases, built(build(cases))


def feeds_of(cases: list[Case], with_ones: bool = False) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for number, one in enumerate(cases):
        feeds |= named(number, one.run_inputs(with_ones))
    return feeds


def test_equal_sizes_and_ones(family: tuple[list[Case], Run]) -> None:
    cases, run = family
    for with_ones in (False, True):
        results = iter(run(feeds_of(cases, with_ones)))
        for one in cases:
            for want in reference(one)(named(0, one.run_inputs(with_ones))):
                got = next(results)
                assert (got.shape, got.dtype) == (want.shape, want.dtype), one.op
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=one.op)


def one_off(array: Array, axis: int) -> Iterator[Array]:
    """Yield an array with one element less and one more along an axis."""
    if array.shape[axis] > 2:  # a size of 1 might broadcast
        yield np.take(array, range(array.shape[axis] - 1), axis)
    yield np.concatenate([array, np.take(array, [0], axis)], axis)


def test_sizes_that_do_not_fit_are_refused(family: tuple[list[Case], Run]) -> None:
    """A kernel would read beyond the end of the shorter operand."""
    cases, run = family
    feeds, refused = feeds_of(cases), 0
    for number, one in enumerate(cases):
        alone = reference(one)
        for place, array in enumerate(one.inputs):
            axes = range(array.ndim) if array is not None else ()
            for axis in (axis for axis in axes if axis not in one.known.get(place, ())):
                for wrong in one_off(array, axis):
                    try:
                        alone({**named(0, one.inputs), f"x0_{place}": wrong})
                    except Exception:
                        refused += 1
                        with pytest.raises((ValueError, IndexError, RuntimeError)):
                            run({**feeds, f"x{number}_{place}": wrong})
    assert refused
