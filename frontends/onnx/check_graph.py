"""Check the structure of a model's graphs: names, nesting, and calls of functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import onnx

from frontends.errors import InvalidModel
from frontends.onnx.registry import normalize_domain
from frontends.onnx.subgraphs import ModelParts, node_title, subgraphs_of

# Protobuf's own limit of 100 nested messages ends a file at 32 levels of subgraphs.
MAX_NESTING = 32
# Functions that call functions twice double at each level: 40 of them are a trillion nodes.
MAX_EXPANDED_NODES = 1_000_000

# The outputs of a body that are none of the node's: a loop's condition.
_BODY_ONLY = {"If": 0, "Loop": 1, "Scan": 0}

_Key = tuple[str, str, str]


def check_graph(model: onnx.ModelProto, parts: ModelParts, file: str) -> None:
    """Check nesting, functions and names.

    Args:
        model: Any model.
        parts: What it consists of.
        file: What to call it in errors.

    Raises:
        InvalidModel: Subgraphs or functions nest too deeply, a function calls itself, a name is
            used before it is defined (a cycle), defined twice, nowhere, or shadows an outer one, or
            an attribute is given twice.
    """
    _check_texts(model, parts, file)
    _check_functions(model, parts, file)
    _Names(file).check_graph(model.graph, [])
    for function in model.functions:
        _Names(file, in_function=True).check_function(function)


def _check_texts(model: onnx.ModelProto, parts: ModelParts, file: str) -> None:
    """Check names and types: protobuf returns a name that is not UTF-8 as bytes."""
    for node in parts.nodes:
        texts = [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
        _require_text(texts, file)
    for graph in parts.graphs:
        values = [*graph.input, *graph.output, *graph.initializer]
        _require_text([graph.name, *(value.name for value in values)], file)
        _require_text([sparse.values.name for sparse in graph.sparse_initializer], file)
        for value in [*graph.input, *graph.output]:
            kind = value.type.tensor_type
            _require_text([dim.dim_param for dim in kind.shape.dim], file)
            if kind.elem_type not in onnx.TensorProto.DataType.values():
                raise InvalidModel(
                    f"unknown element type {kind.elem_type}", tensor=value.name, file=file
                )
    for function in model.functions:
        texts = [function.name, function.domain, function.overload, *function.input]
        _require_text([*texts, *function.output, *function.attribute], file)
    _require_text([opset.domain for opset in model.opset_import], file)


def _require_text(texts: Iterable[object], file: str) -> None:
    for text in texts:
        if isinstance(text, bytes):
            raise InvalidModel(f"the name {text!r} is not UTF-8", file=file)


def _check_functions(model: onnx.ModelProto, parts: ModelParts, file: str) -> None:
    """Check that calls of functions end, neither too deep nor in too many nodes."""
    bodies: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (normalize_domain(function.domain), function.name, function.overload)
        if key in bodies:
            raise InvalidModel(f"function {function.name!r} is defined twice", file=file)
        bodies[key] = function
    calls: dict[_Key, Counter[_Key]] = {}
    own: dict[_Key, tuple[int, int]] = {}  # nodes, depth of subgraphs
    main: _Key = ("", "", "")
    for node in parts.nodes if bodies else ():
        body = bodies.get(_key(node))
        if body and (len(node.input) > len(body.input) or len(node.output) > len(body.output)):
            raise InvalidModel(
                f"function {body.name!r} has {len(body.input)} inputs and {len(body.output)} "
                "outputs, it is called with more",
                node=node_title(node),
                file=file,
            )
    for key, holder, nodes in zip(
        [main, *bodies], [model.graph, *model.functions], parts.bodies, strict=True
    ):
        called = Counter(_key(node) for node in nodes) if bodies else Counter[_Key]()
        calls[key] = Counter({name: count for name, count in called.items() if name in bodies})
        nested = len(nodes) > len(holder.node)
        own[key] = (len(nodes), _depth(holder.node, file) if nested else 0)
    expanded: dict[_Key, tuple[int, int]] = {}
    path: list[_Key] = []
    waiting = [(main, False)]
    while waiting:
        key, ready = waiting.pop()
        if ready:
            path.pop()
            size, depth = own[key]
            inner = [(count, *expanded[name]) for name, count in calls[key].items()]
            size += sum(count * nodes for count, nodes, _ in inner)
            depth += 1 + max((levels for _, _, levels in inner), default=0)
            _check_depth(depth, file)
            if size > MAX_EXPANDED_NODES:
                raise InvalidModel(f"its functions expand to {size} nodes", file=file)
            expanded[key] = (size, depth)
        elif key in path:
            circle = [*path[path.index(key) :], key]
            raise InvalidModel(
                f"function {key[1]!r} calls itself: " + " -> ".join(name for _, name, _ in circle),
                file=file,
            )
        elif key not in expanded:
            path.append(key)
            _check_depth(len(path), file)
            waiting.append((key, True))
            waiting.extend((name, False) for name in calls[key])


def _check_depth(depth: int, file: str) -> None:
    if depth > 2 * MAX_NESTING:
        raise InvalidModel(
            f"functions and subgraphs are nested more than {2 * MAX_NESTING} deep", file=file
        )


def _key(node: onnx.NodeProto) -> _Key:
    return (normalize_domain(node.domain), node.op_type, node.overload)


def _depth(nodes: Iterable[onnx.NodeProto], file: str) -> int:
    """Return how deep subgraphs are nested below `nodes`."""
    deepest = 0
    waiting = [(node, 0) for node in nodes]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth > MAX_NESTING:
            raise InvalidModel(
                f"subgraphs are nested more than {MAX_NESTING} deep",
                node=node_title(node),
                file=file,
            )
        for attribute in node.attribute:
            for graph in subgraphs_of(attribute):
                waiting.extend((inner, depth + 1) for inner in graph.node)
    return deepest


class _Names:
    """Checks that every name is defined once and before it is used (ONNX spec: SSA, sorted)."""

    def __init__(self, file: str, in_function: bool = False) -> None:
        self._file, self._in_function = file, in_function

    def check_graph(self, graph: onnx.GraphProto, outer: list[set[str]]) -> None:
        """Check one graph whose nodes see the names of `outer`."""
        known: set[str] = set()
        inputs = {value.name for value in graph.input}
        for value in graph.input:
            # An input may have an outer name: exporters write `i` and `cond` in every loop, and
            # inside of it nothing else can be meant.
            self._define(value.name, None, known, [])
        seen: set[str] = set()
        for tensor in [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]:
            name = tensor.name
            if name in seen:
                raise InvalidModel("two initializers have this name", tensor=name, file=self._file)
            seen.add(name)
            if name not in inputs:  # else it is that input's default
                self._define(name, None, known, outer)
        self._check_nodes(graph.node, known, outer)
        for value in graph.output:
            if not any(value.name in names for names in [known, *outer]):
                raise InvalidModel(
                    "an output is defined nowhere", tensor=value.name, file=self._file
                )

    def check_function(self, function: onnx.FunctionProto) -> None:
        """Check the body of a function, which sees nothing but its inputs."""
        known: set[str] = set()
        for name in function.input:
            self._define(name, function.name, known, [])
        self._check_nodes(function.node, known, [])
        for name in function.output:
            if name not in known:
                raise InvalidModel(
                    f"an output of function {function.name!r} is defined nowhere",
                    tensor=name,
                    file=self._file,
                )

    def _define(self, name: str, node: str | None, known: set[str], outer: list[set[str]]) -> None:
        if not name:
            raise InvalidModel("an input or an initializer has no name", file=self._file)
        if name in known:
            raise InvalidModel("the name is defined twice", node=node, tensor=name, file=self._file)
        if any(name in names for names in outer):
            raise InvalidModel(
                "a name of a subgraph shadows one outside", node=node, tensor=name, file=self._file
            )
        known.add(name)

    def _check_nodes(
        self, nodes: Sequence[onnx.NodeProto], known: set[str], outer: list[set[str]]
    ) -> None:
        scopes = [known, *outer]
        for node in nodes:
            title = node_title(node)
            for used in node.input:
                if used and used not in known and not any(used in names for names in outer):
                    reason = (
                        "the graph has a cycle or is not in topological order: an input is "
                        "computed only later"
                        if any(used in node.output for node in nodes)
                        else "an input is defined nowhere"
                    )
                    raise InvalidModel(reason, node=title, tensor=used, file=self._file)
            given: set[str] = set()
            for attribute in node.attribute:
                if attribute.name in given:
                    raise InvalidModel(
                        f"attribute {attribute.name!r} is given twice", node=title, file=self._file
                    )
                given.add(attribute.name)
                if attribute.ref_attr_name and not self._in_function:
                    raise InvalidModel(
                        f"attribute {attribute.name!r} refers to a function's attribute outside "
                        "of a function",
                        node=title,
                        file=self._file,
                    )
                for subgraph in subgraphs_of(attribute):
                    self._check_number_of_outputs(node, attribute.name, subgraph)
                    self.check_graph(subgraph, scopes)
            for output in node.output:
                if output:
                    self._define(output, title, known, outer)

    def _check_number_of_outputs(
        self, node: onnx.NodeProto, name: str, body: onnx.GraphProto
    ) -> None:
        if normalize_domain(node.domain) or node.op_type not in _BODY_ONLY:
            return
        given = len(body.output) - _BODY_ONLY[node.op_type]
        if len(node.output) > given:
            raise InvalidModel(
                f"{node.op_type} has {len(node.output)} outputs, {name} gives {given}",
                node=node_title(node),
                file=self._file,
            )
