"""Find every operator of a model that cannot be imported, before anything is built."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.fold import can_fold
from frontends.onnx.function_body import has_schema_function
from frontends.onnx.load_model import subgraphs_of
from frontends.onnx.registry import find_converter, normalize_domain

_SHOWN_NODES = 3


def check_support(model: onnx.ModelProto, opsets: dict[str, int], file: str) -> None:
    """Raise UnsupportedOperator, listing all of them, if an operator has no way in."""
    functions = {(normalize_domain(f.domain), f.name) for f in model.functions}
    missing: dict[tuple[str, str, int], list[str]] = {}
    known = {tensor.name for tensor in model.graph.initializer}
    _scan(model.graph.node, opsets, functions, known, missing, file)
    for function in model.functions:
        inner = {normalize_domain(entry.domain): entry.version for entry in function.opset_import}
        _scan(function.node, {**opsets, **inner}, functions, set(), missing, file)
    if missing:
        lines = []
        for (domain, name, opset), nodes in sorted(missing.items()):
            title = f"{domain}.{name}" if domain else name
            shown = ", ".join(nodes[:_SHOWN_NODES]) + (", ..." if len(nodes) > _SHOWN_NODES else "")
            lines.append(f"{title} (opset {opset}) in {len(nodes)} node(s): {shown}")
        raise UnsupportedOperator("unsupported operators: " + "; ".join(lines), file=file)


def _scan(
    nodes: Iterable[onnx.NodeProto],
    opsets: dict[str, int],
    functions: set[tuple[str, str]],
    known: set[str],
    missing: dict[tuple[str, str, int], list[str]],
    file: str,
) -> None:
    known = set(known)
    for node in nodes:
        domain = normalize_domain(node.domain)
        has_graph = any(subgraphs_of(attribute) for attribute in node.attribute)
        if can_fold(node) and not has_graph and all(x in known for x in node.input if x):
            known.update(node.output)
            if node.input or node.op_type == "Constant":
                continue
        for attribute in node.attribute:
            for subgraph in subgraphs_of(attribute):
                _scan(subgraph.node, opsets, functions, known, missing, file)
        if (domain, node.op_type) in functions:
            continue
        if domain not in opsets:
            raise InvalidModel(
                f"the model imports no opset of domain {domain or 'ai.onnx'!r}",
                node=node.name or node.op_type,
                file=file,
            )
        opset = opsets[domain]
        if find_converter(domain, node.op_type, opset) is None and not has_schema_function(
            domain, node.op_type, opset
        ):
            title = node.name or next((name for name in node.output if name), node.op_type)
            missing.setdefault((domain, node.op_type, opset), []).append(title)
