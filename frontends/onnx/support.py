"""Find out how each operator of a model is imported, before anything is built."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx
from onnx import defs

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.fold import can_fold
from frontends.onnx.function_body import has_schema_function
from frontends.onnx.registry import find_converter, normalize_domain, refusal
from frontends.onnx.subgraphs import node_title, subgraphs_of

FOLDED = "folded"
MODEL_FUNCTION = "model's function"
CONVERTER = "converter"
FUNCTION_BODY = "function body"
UNSUPPORTED = "unsupported"

_SHOWN_NODES = 3

Names = ChainMap[str, None]  # a set in layers, one for each graph around


@dataclass
class OperatorUse:
    """The nodes of one operator that are imported in the same way.

    Attributes:
        domain: The operator's domain, "" for ai.onnx.
        name: The operator.
        opset: Version of the domain in the graph or function that holds the nodes.
        route: `FOLDED` (all inputs are constants), `MODEL_FUNCTION`, `CONVERTER`, `FUNCTION_BODY`
            (of ONNX's schema) or `UNSUPPORTED`.
        nodes: Names of the nodes, those in subgraphs and functions included.
    """

    domain: str
    name: str
    opset: int
    route: str
    nodes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return the operator with its domain, if it is not ai.onnx."""
        return f"{self.domain}.{self.name}" if self.domain else self.name

    @property
    def reason(self) -> str:
        """Return why the operator will not be supported, "" if it is or nothing is known."""
        return refusal(self.domain, self.name) if self.route == UNSUPPORTED else ""


def survey_operators(
    model: onnx.ModelProto, opsets: dict[str, int], file: str
) -> list[OperatorUse]:
    """Return how every operator of a model is imported, sorted by domain and name.

    Nodes of subgraphs and of the model's functions count; what ONNX's own function bodies use is
    only listed where it is unsupported.

    Args:
        model: A checked model.
        opsets: Version of each domain that the model imports.
        file: What to call the model in errors.

    Raises:
        InvalidModel: If a node's domain is not imported.
    """
    survey = _Survey(model, file)
    survey.scan(model.graph.node, opsets, _names(model.graph.initializer))
    for function in model.functions:
        inner = {normalize_domain(entry.domain): entry.version for entry in function.opset_import}
        survey.scan(function.node, {**opsets, **inner}, _names([]))
    return sorted(
        survey.uses.values(), key=lambda use: (use.domain, use.name, use.opset, use.route)
    )


def check_support(model: onnx.ModelProto, opsets: dict[str, int], file: str) -> None:
    """Raise UnsupportedOperator, listing all of them, if an operator has no way in."""
    lines = []
    for use in survey_operators(model, opsets, file):
        if use.route == UNSUPPORTED:
            rest = ", ..." if len(use.nodes) > _SHOWN_NODES else ""
            shown = ", ".join(use.nodes[:_SHOWN_NODES]) + rest
            why = f" ({use.reason})" if use.reason else ""
            lines.append(
                f"{use.title} (opset {use.opset}) in {len(use.nodes)} node(s): {shown}{why}"
            )
    if lines:
        raise UnsupportedOperator("unsupported operators: " + "; ".join(lines), file=file)


class _Survey:
    """Collects the uses of operators."""

    def __init__(self, model: onnx.ModelProto, file: str) -> None:
        self.uses: dict[tuple[str, str, int, str], OperatorUse] = {}
        self._functions = {(normalize_domain(f.domain), f.name) for f in model.functions}
        self._file = file
        self._missing_in_body: dict[tuple[str, str, int], list[tuple[str, str, int]]] = {}

    def scan(self, nodes: Iterable[onnx.NodeProto], opsets: dict[str, int], known: Names) -> None:
        """Enter the nodes and those of their subgraphs; `known` are names of constants."""
        for node in nodes:
            graphs = [graph for attribute in node.attribute for graph in subgraphs_of(attribute)]
            constant = can_fold(node) and not graphs and all(x in known for x in node.input if x)
            if constant:
                known.update(dict.fromkeys(node.output))
            for graph in graphs:
                # A layer on top, not a copy: a model may have thousands of branches.
                self.scan(graph.node, opsets, known.new_child(dict(_names(graph.initializer))))
            self._enter(node, opsets, constant and (bool(node.input) or node.op_type == "Constant"))

    def _enter(self, node: onnx.NodeProto, opsets: dict[str, int], folded: bool) -> None:
        domain, name = normalize_domain(node.domain), node.op_type
        if (domain, name) in self._functions:
            self._add(domain, name, opsets.get(domain, 1), MODEL_FUNCTION, node)
            return
        if domain not in opsets:
            if folded:
                return
            raise InvalidModel(
                f"the model imports no opset of domain {domain or 'ai.onnx'!r}",
                node=node_title(node),
                file=self._file,
            )
        opset = opsets[domain]
        if folded:
            self._add(domain, name, opset, FOLDED, node)
            return
        route = route_of(domain, name, opset)
        self._add(domain, name, opset, route, node)
        if route == FUNCTION_BODY:
            for missing in self._missing_in(domain, name, opset):
                self._add(*missing, UNSUPPORTED, node)

    def _add(self, domain: str, name: str, opset: int, route: str, node: onnx.NodeProto) -> None:
        use = self.uses.setdefault(
            (domain, name, opset, route), OperatorUse(domain, name, opset, route)
        )
        use.nodes.append(node_title(node))

    def _missing_in(self, domain: str, name: str, opset: int) -> list[tuple[str, str, int]]:
        """Return what a schema's function body uses and cannot be imported.

        Bodies that depend on the types of a node's inputs are only known while it is imported.
        """
        key = (domain, name, opset)
        if key not in self._missing_in_body:
            self._missing_in_body[key] = []
            schema = defs.get_schema(name, opset, domain)
            versions = [v for v in schema.function_opset_versions if v <= opset]
            if versions:
                body = onnx.FunctionProto.FromString(
                    schema.get_function_with_opset_version(max(versions))
                )
                inside = {normalize_domain(o.domain): o.version for o in body.opset_import}
                inner = _Survey(onnx.ModelProto(), self._file)
                inner.scan(body.node, {"": opset, **inside}, _names([]))
                self._missing_in_body[key] = [
                    (use.domain, use.name, use.opset)
                    for use in inner.uses.values()
                    if use.route == UNSUPPORTED
                ]
        return self._missing_in_body[key]


def _names(tensors: Iterable[onnx.TensorProto]) -> Names:
    """Return the names of tensors as the outermost layer."""
    return ChainMap({tensor.name: None for tensor in tensors})


def route_of(domain: str, name: str, opset: int) -> str:
    """Return how a node of an operator is imported if its inputs are not all constants."""
    if find_converter(domain, name, opset) is not None:
        return CONVERTER
    return FUNCTION_BODY if has_schema_function(domain, name, opset) else UNSUPPORTED
