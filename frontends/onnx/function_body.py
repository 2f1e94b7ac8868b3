"""Expand operators that are defined by other operators: schema functions and model-local ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import defs

from frontends.errors import InvalidModel
from frontends.onnx.registry import normalize_domain


@dataclass(frozen=True)
class FunctionBody:
    """An operator's body, its attribute references resolved for one node."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    opsets: dict[str, int]


def has_schema_function(domain: str, name: str, opset: int) -> bool:
    """Tell whether ONNX itself defines the operator by a function."""
    try:
        schema = defs.get_schema(name, opset, normalize_domain(domain))
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_function(
    node: onnx.NodeProto, opset: int, input_types: Sequence[onnx.TypeProto]
) -> FunctionBody | None:
    """Return the body that the ONNX schema gives `node`, or None.

    Args:
        node: The node to expand.
        opset: The model's opset version of the node's domain.
        input_types: Types of the node's inputs; bodies may depend on them (ranks, dtypes).
    """
    domain = normalize_domain(node.domain)
    try:
        schema = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        return None
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= opset]
        if versions:
            body = onnx.FunctionProto.FromString(
                schema.get_function_with_opset_version(max(versions))
            )
            return instantiate(body, node, schema)
    if schema.has_context_dependent_function:
        versions = [
            version
            for version in schema.context_dependent_function_opset_versions
            if version <= opset
        ]
        if versions:
            body = onnx.FunctionProto.FromString(
                schema.get_context_dependent_function_with_opset_version(
                    max(versions),
                    node.SerializeToString(),
                    [kind.SerializeToString() for kind in input_types],
                )
            )
            if not body.output:  # attributes or types for which the schema builds nothing
                raise InvalidModel("its attributes or types contradict each other")
            return instantiate(body, node, schema)
    return None


def instantiate(
    body: onnx.FunctionProto, node: onnx.NodeProto, schema: defs.OpSchema | None = None
) -> FunctionBody:
    """Return the body of `node`: attribute references replaced by the node's attributes."""
    given = {attribute.name: attribute for attribute in node.attribute}
    for default in body.attribute_proto:
        given.setdefault(default.name, default)
    if schema is not None:
        for name, declared in schema.attributes.items():
            if declared.default_value.name:
                given.setdefault(name, declared.default_value)
    return FunctionBody(
        tuple(body.input),
        tuple(body.output),
        tuple(_resolve(inner, given) for inner in body.node),
        {normalize_domain(opset.domain): opset.version for opset in body.opset_import},
    )


def _resolve(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    resolved = onnx.NodeProto()
    resolved.CopyFrom(node)
    del resolved.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept = resolved.attribute.add()
            kept.CopyFrom(attribute)
            for graph in ([kept.g] if kept.HasField("g") else []) + list(kept.graphs):
                inner = [_resolve(inside, given) for inside in graph.node]
                del graph.node[:]
                graph.node.extend(inner)
        elif attribute.ref_attr_name in given:
            copy = resolved.attribute.add()
            copy.CopyFrom(given[attribute.ref_attr_name])
            copy.name = attribute.name
    return resolved
