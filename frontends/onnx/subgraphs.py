"""Walk the graphs inside a graph: the bodies of If, Loop and Scan, and model-local functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the main graph and every subgraph, those inside functions included."""
    yield model.graph
    for nodes in [model.graph.node, *(function.node for function in model.functions)]:
        for node in all_nodes(nodes):
            for attribute in node.attribute:
                yield from subgraphs_of(attribute)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every dense tensor: initializers and attributes, wherever they are."""
    for graph in all_graphs(model):
        yield from graph.initializer
    for nodes in [model.graph.node, *(function.node for function in model.functions)]:
        for node in all_nodes(nodes):
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def all_sparse_tensors(model: onnx.ModelProto) -> Iterator[onnx.SparseTensorProto]:
    """Yield every sparse tensor: initializers and attributes, wherever they are."""
    for graph in all_graphs(model):
        yield from graph.sparse_initializer
    for nodes in [model.graph.node, *(function.node for function in model.functions)]:
        for node in all_nodes(nodes):
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor
                yield from attribute.sparse_tensors


def node_title(node: onnx.NodeProto) -> str:
    """Return what to call a node in an error: its name, its first output, or its operator."""
    return node.name or next((name for name in node.output if name), node.op_type)
