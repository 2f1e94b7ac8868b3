"""Write a recipe as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.graphs import operators  # noqa: F401 - fills the table
from tests.fuzz.graphs.evaluate import constant_array
from tests.fuzz.graphs.operator import OPERATORS
from tests.fuzz.graphs.recipe import CONSTANT, INPUT, Recipe, Step, TensorType

_OPSET = 20


def emit_onnx(recipe: Recipe) -> onnx.ModelProto:
    """Return the model that computes the recipe; sizes that no symbol names stay open.

    Raises:
        onnx.checker.ValidationError: If the model is not valid.
    """
    writer = _Writer("v")
    names = [f"x{i}" for i in recipe.inputs()]
    results = writer.body(recipe, names)
    kinds = [recipe.steps[i].type for i in recipe.inputs()]
    graph = helper.make_graph(
        writer.nodes,
        "fuzz",
        [_value_info(n, k) for n, k in zip(names, kinds, strict=True)],
        [_value_info(r, recipe.steps[o].type)
         for r, o in zip(results, recipe.outputs, strict=True)],
        writer.weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model)
    return model


def _value_info(name: str, kind: Any) -> onnx.ValueInfoProto:
    assert isinstance(kind, TensorType)
    plain = [s if isinstance(s, int) or s.scale != 1 or s.offset else s.symbol for s in kind.shape]
    shape = [s if isinstance(s, int | str) else None for s in plain]
    return helper.make_tensor_value_info(name, _element_type(kind.dtype), shape)


def _element_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class _Writer:
    """Collects nodes and weights; what operators ask while they are written."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def body(self, recipe: Recipe, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of a recipe; return the names of its outputs."""
        names: dict[int, Any] = dict(zip(recipe.inputs(), inputs, strict=True))
        for number, step in enumerate(recipe.steps):
            if step.kind == CONSTANT:
                names[number] = self.constant(constant_array(step))
            elif step.kind != INPUT:
                write = OPERATORS[step.kind].onnx
                assert write is not None, step.kind
                args = [names[a] for a in step.args]
                types = [recipe.steps[a].type for a in step.args]
                names[number] = write(self, args, step, types)
        return [names[o] for o in recipe.outputs]

    # What operators ask ---------------------------------------------------------------------------

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attrs: Any) -> Any:
        """Add a node; return the name of its output, a list of them if there are several."""
        made = [f"{self.prefix}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, **attrs))
        return made[0] if outputs == 1 else made

    def constant(self, array: np.ndarray) -> str:
        """Add a weight."""
        name = f"{self.prefix}w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def element_type(self, dtype: str) -> int:
        """Return ONNX's number of a dtype."""
        return _element_type(dtype)

    def branch(self, names: Sequence[str], step: Step, types: Sequence[Any]) -> Any:
        """Add an If node; its graphs read the captured tensors by name."""
        graphs = [
            self._subgraph(step.attrs[arm], names[1:], f"{self.prefix}{len(self.nodes)}{arm}")
            for arm in ("then", "other")
        ]
        count = len(step.attrs["then"].outputs)
        made = self.node("If", names[:1], count, then_branch=graphs[0], else_branch=graphs[1])
        return made

    def _subgraph(self, recipe: Recipe, inputs: Sequence[str], prefix: str) -> onnx.GraphProto:
        writer = _Writer(prefix)
        results = writer.body(recipe, inputs)
        # A graph's output is a node's: what the branch hands through, or hands out twice.
        results = [writer.node("Identity", [name]) for name in results]
        kinds = [recipe.steps[o].type for o in recipe.outputs]
        outputs = [_value_info(n, k) for n, k in zip(results, kinds, strict=True)]
        return helper.make_graph(writer.nodes, prefix, [], outputs, writer.weights)
