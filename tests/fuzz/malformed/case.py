"""What a malformed model is, the register of all, and the small models they are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
make_node = helper.make_node


class Malformed(NamedTuple):
    """One model, and what its error must contain."""

    model: onnx.ModelProto
    text: str


CASES: dict[str, Callable[[], Malformed]] = {}


def case(make: Callable[[], Malformed]) -> Callable[[], Malformed]:
    """Put the maker of a model into the corpus, under its own name."""
    CASES[make.__name__] = make
    return make


def value(name: str, shape: Sequence[int | str] | None = (2, 3), kind: int = FLOAT):
    """Return a typed name."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto] = (make_node("Relu", ["x"], ["y"]),),
    weights: Sequence[onnx.TensorProto] = (),
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    output: str = "y",
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a model with input x of [2, 3]."""
    graph = helper.make_graph(
        list(nodes), "g", list(inputs or [value("x")]), [value(output, None)], list(weights)
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def make_weight(name: str, array: object, dtype: str = "float32") -> onnx.TensorProto:
    """Return an initializer."""
    return numpy_helper.from_array(np.asarray(array, dtype), name)
