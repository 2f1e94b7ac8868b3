"""Small valid models that the fuzzer mutates: every way an ONNX file can hold something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
EXTERNAL_FILE = "weights.bin"  # lies beside each mutated model
EXTERNAL_BYTES = 4 * 12

_node = helper.make_node


def _value(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape).astype("float32")
    return numpy_helper.from_array(values, name)


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, "int64"), name)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 17,
    kinds: dict[str, int] | None = None,
    **more: Any,
) -> onnx.ModelProto:
    kinds = kinds or {}
    graph = helper.make_graph(
        nodes,
        "seed",
        [_value(name, shape, kinds.get(name, FLOAT)) for name, shape in inputs.items()],
        [_value(name, None, kinds.get(name, FLOAT)) for name in outputs],
        weights,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    opsets += [helper.make_opsetid("local", 1)] if more.get("functions") else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def convolutions() -> onnx.ModelProto:
    """Return convolution, batch norm, pooling and a classifier."""
    nodes = [
        _node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        _node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"], epsilon=1e-5),
        _node("Relu", ["c"], ["d"]),
        _node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        _node("GlobalAveragePool", ["e"], ["f"]),
        _node("Flatten", ["f"], ["g"], axis=1),
        _node("Gemm", ["g", "k"], ["y"], transB=1, alpha=0.5),
    ]
    variance = numpy_helper.from_array(np.ones(4, "float32"), "v")
    weights = [_weight("w", 4, 3, 3, 3), *(_weight(n, 4) for n in "sbm"), variance]
    return _model(nodes, {"x": [1, 3, 8, 8]}, ["y"], [*weights, _weight("k", 5, 4)])


def transposed_convolution() -> onnx.ModelProto:
    """Return a transposed convolution, resizing and padding."""
    nodes = [
        _node("ConvTranspose", ["x", "w"], ["a"], strides=[2, 2], output_padding=[1, 1]),
        _node("Resize", ["a", "", "scales"], ["b"], mode="linear"),
        _node("Pad", ["b", "pads"], ["c"], mode="reflect"),
        _node("AveragePool", ["c"], ["y"], kernel_shape=[3, 3], ceil_mode=1),
    ]
    scales = numpy_helper.from_array(np.asarray([1, 1, 2, 2], "float32"), "scales")
    weights = [_weight("w", 2, 3, 3, 3), scales, _ints("pads", 0, 0, 1, 1, 0, 0, 1, 1)]
    return _model(nodes, {"x": [1, 2, 4, 4]}, ["y"], weights)


def attention() -> onnx.ModelProto:
    """Return attention over symbolic sizes, with shape arithmetic."""
    nodes = [
        _node("MatMul", ["x", "q"], ["a"]),
        _node("Shape", ["x"], ["shape"]),
        _node("Gather", ["shape", "zero"], ["batch"], axis=0),
        _node("Gather", ["shape", "one"], ["length"], axis=0),
        _node("Concat", ["batch", "length", "heads", "rest"], ["split"], axis=0),
        _node("Reshape", ["a", "split"], ["b"]),
        _node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3]),
        _node("Transpose", ["b"], ["d"], perm=[0, 2, 3, 1]),
        _node("MatMul", ["c", "d"], ["e"]),
        _node("Div", ["e", "root"], ["f"]),
        _node("Softmax", ["f"], ["g"], axis=-1),
        _node("MatMul", ["g", "c"], ["h"]),
        _node("LayerNormalization", ["h", "scale", "shift"], ["y"], axis=-1),
    ]
    root = numpy_helper.from_array(np.asarray(2.0, "float32"), "root")
    weights = [_weight("q", 8, 8), root, _weight("scale", 4), _weight("shift", 4)]
    weights += [_ints("zero", 0), _ints("one", 1), _ints("heads", 2), _ints("rest", -1)]
    return _model(nodes, {"x": ["batch", "length", 8]}, ["y"], weights)


def indexing() -> onnx.ModelProto:
    """Return slices, gathers, splits, top-k and data-dependent shapes."""
    nodes = [
        _node("Slice", ["x", "starts", "ends", "axes", "steps"], ["a"]),
        _node("Split", ["a"], ["b", "c"], axis=0),
        _node("Gather", ["b", "picks"], ["d"], axis=1),
        _node("TopK", ["x", "k"], ["e", "f"], axis=1),
        _node("Expand", ["d", "to"], ["g"]),
        _node("Tile", ["c", "times"], ["h"]),
        _node("NonZero", ["x"], ["i"]),
        _node("ScatterND", ["x", "where", "what"], ["j"]),
        _node("OneHot", ["picks", "depth", "values"], ["l"]),
    ]
    weights = [
        *(_ints("starts", 0, 1), _ints("ends", 4, 6), _ints("axes", 0, 1), _ints("steps", 1, 1)),
        *(_ints("picks", 0, 2, 1), _ints("k", 2), _ints("to", 3, 2, 3), _ints("times", 2, 1)),
        numpy_helper.from_array(np.asarray([[0], [2]], "int64"), "where"),
        *(_weight("what", 2, 6), numpy_helper.from_array(np.asarray(5, "int64"), "depth")),
        numpy_helper.from_array(np.asarray([0, 1], "float32"), "values"),
    ]
    kinds = {"f": INT64, "i": INT64}
    outputs = ["e", "f", "g", "h", "i", "j", "l"]
    return _model(nodes, {"x": [4, 6]}, outputs, weights, kinds=kinds)


def control_flow() -> onnx.ModelProto:
    """Return an If that reads outer names, and a Loop."""
    scalar = helper.make_tensor("half", FLOAT, [], [0.5])
    then = helper.make_graph([_node("Mul", ["x", "w"], ["t"])], "then", [], [_value("t", [3])])
    other = helper.make_graph(
        [_node("Constant", [], ["half"], value=scalar), _node("Add", ["x", "half"], ["o"])],
        *("other", [], [_value("o", [3])]),
    )
    body = helper.make_graph(
        [_node("Identity", ["again"], ["go"]), _node("Add", ["state", "w"], ["next"])],
        "body",
        [
            _value("i", [], INT64),
            _value("again", [], TensorProto.BOOL),
            _value("state", [3]),
        ],
        [_value("go", [], TensorProto.BOOL), _value("next", [3])],
    )
    nodes = [
        _node("If", ["flag"], ["a"], then_branch=then, else_branch=other),
        _node("Loop", ["count", "flag", "a"], ["y"], body=body),
    ]
    weights = [_weight("w", 3), numpy_helper.from_array(np.asarray(3, "int64"), "count")]
    kinds = {"flag": TensorProto.BOOL}
    return _model(nodes, {"x": [3], "flag": []}, ["y"], weights, kinds=kinds)


def recurrent() -> onnx.ModelProto:
    """Return an LSTM and a GRU."""
    nodes = [
        _node("LSTM", ["x", "w", "r", "b"], ["a", "last"], hidden_size=4),
        _node("Squeeze", ["a", "axis"], ["c"]),
        _node("GRU", ["c", "w2", "r2"], ["y"], hidden_size=2, direction="bidirectional"),
    ]
    weights = [_weight("w", 1, 16, 3), _weight("r", 1, 16, 4), _weight("b", 1, 32)]
    weights += [_weight("w2", 2, 6, 4), _weight("r2", 2, 6, 2), _ints("axis", 1)]
    return _model(nodes, {"x": [5, 1, 3]}, ["y", "last"], weights)


def quantized() -> onnx.ModelProto:
    """Return quantization, an integer matrix product, and back."""
    nodes = [
        _node("QuantizeLinear", ["x", "scale", "zero"], ["a"]),
        _node(
            "QLinearMatMul", ["a", "scale", "zero", "w", "scale", "zero", "scale", "zero"], ["b"]
        ),
        _node("DequantizeLinear", ["b", "scale", "zero"], ["c"]),
        _node("DynamicQuantizeLinear", ["c"], ["d", "e", "f"]),
        _node("MatMulInteger", ["d", "w", "f"], ["g"]),
        _node("Cast", ["g"], ["y"], to=FLOAT),
    ]
    weights = [
        numpy_helper.from_array(np.asarray(0.1, "float32"), "scale"),
        numpy_helper.from_array(np.asarray(128, "uint8"), "zero"),
        numpy_helper.from_array(np.arange(16, dtype="uint8").reshape(4, 4), "w"),
    ]
    return _model(nodes, {"x": [2, 4]}, ["y"], weights)


def functions() -> onnx.ModelProto:
    """Return a model-local function that calls another, with an attribute reference."""
    leak = _node("LeakyRelu", ["a"], ["b"])
    reference = leak.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Leak", ["a"], ["b"], [leak], opsets, ["slope"])
    outer = helper.make_function(
        "local",
        "Twice",
        ["p", "q"],
        ["s"],
        [
            _node("Leak", ["p"], ["r"], domain="local", slope=0.25),
            _node("Add", ["r", "q"], ["t"]),
            _node("Leak", ["t"], ["s"], domain="local", slope=0.5),
        ],
        opsets,
    )
    nodes = [
        _node("Twice", ["x", "w"], ["a"], domain="local"),
        _node("Twice", ["a", "x"], ["y"], domain="local"),
    ]
    return _model(nodes, {"x": [2, 3]}, ["y"], [_weight("w", 3)], functions=[inner, outer])


def contributed() -> onnx.ModelProto:
    """Return operators of the domain com.microsoft."""
    contrib = "com.microsoft"
    nodes = [
        _node("FusedMatMul", ["x", "w"], ["a"], domain=contrib, alpha=0.5, transB=1),
        _node("BiasGelu", ["a", "b"], ["c"], domain=contrib),
        _node("SkipLayerNormalization", ["c", "c", "s"], ["y"], domain=contrib, epsilon=1e-5),
    ]
    weights = [_weight("w", 4, 4), _weight("b", 4), _weight("s", 4)]
    return _model(nodes, {"x": [1, 2, 4]}, ["y"], weights)


def constants() -> onnx.ModelProto:
    """Return constants in every storage: typed, raw, external, sparse, folded, grown."""
    external = TensorProto(name="outside", data_type=FLOAT, dims=[3, 4])
    external.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EXTERNAL_FILE), ("offset", "0"), ("length", "48")):
        external.external_data.add(key=key, value=value)
    half = helper.make_tensor("typed", TensorProto.FLOAT16, [4], [0.5, 1, 2, 4])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse", FLOAT, [2], [1.5, 2.5]),
        helper.make_tensor("", INT64, [2], [1, 3]),
        [4],
    )
    fill = helper.make_tensor("", FLOAT, [1], [0.25])
    nodes = [
        _node("Cast", ["typed"], ["a"], to=FLOAT),
        _node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        _node("ConstantOfShape", ["shape"], ["c"], value=fill),
        _node("Range", ["zero", "four", "one"], ["d"]),
        _node("Expand", ["b", "shape"], ["e"]),
        _node("MatMul", ["x", "outside"], ["f"]),
        _node("Sum", ["a", "b", "c", "d", "e", "f", "sparse"], ["y"]),
    ]
    numbers = [("zero", 0.0), ("four", 4.0), ("one", 1.0)]
    weights = [external, half, _ints("shape", 2, 4)]
    weights += [numpy_helper.from_array(np.asarray(v, "float32"), n) for n, v in numbers]
    model = _model(nodes, {"x": [2, 3]}, ["y"], weights)
    model.graph.sparse_initializer.append(sparse)
    return model


def old_opset() -> onnx.ModelProto:
    """Return a model of opset 7, where axes, pads and bounds are attributes."""
    nodes = [
        _node("Unsqueeze", ["x"], ["a"], axes=[0]),
        _node("Pad", ["a"], ["b"], pads=[0, 0, 1, 0, 0, 1], value=1.0),
        _node("Clip", ["b"], ["c"], min=-1.0, max=1.0),
        _node("ReduceMean", ["c"], ["d"], axes=[1], keepdims=1),
        _node("Upsample", ["img"], ["e"], scales=[1.0, 1.0, 2.0, 2.0]),
        _node("Softmax", ["d"], ["y"], axis=1),
    ]
    shapes = {"x": [3, 4], "img": [1, 1, 2, 2]}
    return _model(nodes, shapes, ["y", "e"], opset=7)


def signals() -> onnx.ModelProto:
    """Return transforms and windows, whose sizes are numbers in the model."""
    length = numpy_helper.from_array(np.asarray(8, "int64"), "length")
    step = numpy_helper.from_array(np.asarray(4, "int64"), "step")
    nodes = [
        _node("DFT", ["x", "length"], ["a"], axis=1),
        _node("HannWindow", ["length"], ["window"]),
        _node("STFT", ["x", "step", "window", "length"], ["b"]),
        _node("MelWeightMatrix", ["bins", "length", "rate", "low", "high"], ["c"]),
        _node("EyeLike", ["c"], ["d"], k=1),
        _node("RandomUniform", [], ["e"], shape=[2, 3], seed=1.0),
    ]
    numbers = [("bins", 4, "int64"), ("rate", 8192, "int64")]
    numbers += [("low", 0.0, "float32"), ("high", 4096.0, "float32")]
    weights = [numpy_helper.from_array(np.asarray(v, kind), n) for n, v, kind in numbers]
    outputs = ["a", "b", "c", "d", "e"]
    return _model(nodes, {"x": [1, 16, 1]}, outputs, [length, step, *weights])


def attributes() -> onnx.ModelProto:
    """Return operators whose attributes decide how much is computed."""
    nodes = [
        _node("LRN", ["x"], ["a"], size=3),
        _node("DepthToSpace", ["a"], ["b"], blocksize=2),
        _node("SpaceToDepth", ["b"], ["c"], blocksize=2),
        _node("GroupNormalization", ["c", "s2", "s2"], ["d"], num_groups=2, epsilon=1e-5),
        _node("LpPool", ["d"], ["e"], kernel_shape=[2, 2], p=2),
        _node("Trilu", ["d"], ["f"], upper=1),
        _node("CumSum", ["d", "axis"], ["g"], reverse=1),
        _node("Einsum", ["d", "d"], ["h"], equation="nchw,nchv->nhwv"),
        _node("ArgMax", ["d"], ["i"], axis=1, select_last_index=1),
        _node("MaxPool", ["d"], ["j", "k"], kernel_shape=[2, 2], dilations=[2, 2], ceil_mode=1),
        _node("Col2Im", ["columns", "image", "block"], ["l"], strides=[1, 1]),
        _node("SplitToSequence", ["d"], ["parts"], axis=1, keepdims=1),
        _node("ConcatFromSequence", ["parts"], ["m"], axis=1),
        _node("Loop", ["many", "", "d"], ["n"], body=_counting()),
    ]
    weights = [_weight("s2", 8), _ints("axis", 1), _ints("image", 4, 4), _ints("block", 2, 2)]
    weights += [numpy_helper.from_array(np.asarray(4, "int64"), "many")]
    shapes = {"x": [1, 8, 4, 4], "columns": [1, 4, 9]}
    outputs = [*"efghijklmn"]
    return _model(nodes, shapes, outputs, weights, opset=21, kinds={"i": INT64, "k": INT64})


def _counting() -> onnx.GraphProto:
    return helper.make_graph(
        [_node("Identity", ["on"], ["still"]), _node("Relu", ["was"], ["is"])],
        "counting",
        [_value("i", [], INT64), _value("on", [], TensorProto.BOOL), _value("was", None)],
        [_value("still", [], TensorProto.BOOL), _value("is", None)],
    )


SEEDS: dict[str, Callable[[], onnx.ModelProto]] = {
    make.__name__: make
    for make in (
        *(convolutions, transposed_convolution, attention, indexing, control_flow, recurrent),
        *(quantized, functions, contributed, constants, old_opset, signals),
        attributes,
    )
}


def write_external_data(folder: Path) -> None:
    """Write the file that the models with external data refer to."""
    values = np.arange(EXTERNAL_BYTES // 4, dtype="float32")
    (folder / EXTERNAL_FILE).write_bytes(values.tobytes())
