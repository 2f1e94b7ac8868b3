"""Walk the graphs inside a graph: the bodies of If, Loop and Scan, and model-local functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import onnx


def subgraphs_of(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    """Return the graphs an attribute holds."""
    return ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those of all their subgraphs, without recursion."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        for attribute in node.attribute:
            waiting.extend(iter(graph.node) for graph in subgraphs_of(attribute))


@dataclass(frozen=True)
class ModelParts:
    """What a model consists of, found in one walk for all checks that look at each part.

    Each access to a part through protobuf makes a new Python object for it, from memory that a
    large model has long displaced from the caches: a walk costs more than most checks.

    Attributes:
        bodies: Of the main graph first, then of each function: its nodes, subgraphs included.
        graphs: The main graph and every subgraph, those inside functions included.
        weights: The main graph's dense initializers.
        tensors: Every other dense tensor: attributes, and initializers of subgraphs.
        sparse_tensors: Every sparse tensor: initializers and attributes, wherever they are.
    """

    bodies: list[list[onnx.NodeProto]]
    graphs: list[onnx.GraphProto]
    weights: list[onnx.TensorProto]
    tensors: list[onnx.TensorProto]
    sparse_tensors: list[onnx.SparseTensorProto]

    @property
    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield every node of the graphs and the functions."""
        return chain.from_iterable(self.bodies)


def parts_of(model: onnx.ModelProto) -> ModelParts:
    """Walk a model once."""
    parts = ModelParts([], [model.graph], list(model.graph.initializer), [], [])
    for holder in (model.graph, *model.functions):
        parts.bodies.append(nodes := list(all_nodes(holder.node)))
        for node in nodes:
            for attribute in node.attribute:
                parts.graphs.extend(subgraphs_of(attribute))
                if attribute.HasField("t"):
                    parts.tensors.append(attribute.t)
                parts.tensors.extend(attribute.tensors)
                if attribute.HasField("sparse_tensor"):
                    parts.sparse_tensors.append(attribute.sparse_tensor)
                parts.sparse_tensors.extend(attribute.sparse_tensors)
    for place, graph in enumerate(parts.graphs):
        if place:
            parts.tensors.extend(graph.initializer)
        parts.sparse_tensors.extend(graph.sparse_initializer)
    return parts


def node_title(node: onnx.NodeProto) -> str:
    """Return what to call a node in an error: its name, its first output, or its operator."""
    return node.name or next((name for name in node.output if name), node.op_type)
