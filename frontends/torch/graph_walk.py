"""Walks a functional ATen graph and emits Relax operators, one converter per ATen operator."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax

from frontends.errors import InvalidModel, RelaxcError, UnsupportedOperator
from frontends.torch import operators  # noqa: F401  (registers the converters)
from frontends.torch.complex_numbers import as_complex, is_complex, to_pairs
from frontends.torch.graph_builder import GraphBuilder
from frontends.torch.operators.asserts import ASSERTS
from frontends.torch.operators.random_numbers import is_random
from frontends.torch.registry import COMPLEX_REGISTRY, REGISTRY, Converter
from frontends.torch.source_line import source_line

# A constant result larger than its inputs stays an operator: folding it would only grow the file.
FOLD_LIMIT_BYTES = 1 << 20

# Operators whose result is a size, and which give it its value when the model runs.
_DEFINE_SIZES = ("aten._local_scalar_dense.default", "aten.item.default")

# Operators whose data decides how long their (first) result is.
_DECIDE_LENGTH = (
    "aten.masked_select.default",
    "aten.nonzero.default",
    "aten._unique2.default",
    "aten.bincount.default",
    "aten.unique_consecutive.default",
    "aten.repeat_interleave.Tensor",
)


class GraphWalk:
    """Values of the nodes of a graph: Relax expressions, constants of torch, sizes, scalars."""

    def __init__(
        self, builder: GraphBuilder, values: dict[torch.fx.Node, Any], module: torch.nn.Module
    ) -> None:
        """Start from the values of the placeholders; `module` holds what `get_attr` names."""
        self._builder, self._values, self._module = builder, values, module
        builder.run_subgraph, builder.value_of = self._run_subgraph, values.__getitem__
        builder.holds_functions |= any(
            isinstance(held, torch.fx.GraphModule) for held in module.children()
        )

    def run(self, nodes: Iterable[torch.fx.Node]) -> None:
        """Convert the nodes, in order."""
        for node in nodes:
            if node.op in ("call_function", "get_attr"):
                self._values[node] = self._convert(node)

    def tensor(self, node: torch.fx.Node) -> relax.Expr:
        """Return a node's value as a Relax tensor; complex numbers are pairs (..., 2)."""
        self._builder.node = node
        value, fake = self._values[node], node.meta.get("val")
        if isinstance(fake, torch.Tensor) and fake.is_complex():
            return to_pairs(self._builder, as_complex(self._builder, value, self._builder.dtype))
        return self._builder.tensor(value)

    def _run_subgraph(self, graph: torch.fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
        """Convert a graph that an operator holds: see `GraphBuilder.run_subgraph`."""
        builder, node = self._builder, self._builder.node
        symbols = builder.symbols
        # Sizes are those of the graph around; inside, its symbols may have other values.
        given = [symbols.size(a) if isinstance(a, torch.SymInt) else a for a in arguments]
        (output,) = [n for n in graph.graph.nodes if n.op == "output"]
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        with symbols.scope(), builder.requirements.of_function():
            values = {
                inner: builder.given(argument, inner.meta["val"])
                for inner, argument in zip(placeholders, given, strict=True)
            }
            walk = GraphWalk(builder, values, graph)
            results = pytree.tree_leaves(output.args[0], is_leaf=lambda r: r is None)
            walk.run(live_nodes(graph.graph, output.all_input_nodes))
            found = walk.held([walk.result(r) for r in results])
        builder.node = node
        builder.run_subgraph, builder.value_of = self._run_subgraph, self._values.__getitem__
        return found

    def result(self, item: Any) -> Any:
        """Return a graph's result: a constant as it is, a size as a number or a tensor."""
        value = self._values[item] if isinstance(item, torch.fx.Node) else item
        if isinstance(value, torch.SymInt):
            size = self._builder.symbols.size(value)
            return size if isinstance(size, int) else self._builder.size_tensor(size)
        if isinstance(value, torch.SymBool):
            known = self._builder.symbols.condition(value)
            return known if isinstance(known, bool) else self._builder.tensor(value)
        return value

    def held(self, results: Sequence[Any]) -> list[Any]:
        """Return a graph's results, of which one is computed only if what it asserts holds."""
        place = next((k for k, result in enumerate(results) if result is not None), None)
        if place is None or not self._builder.requirements:
            return list(results)
        first = self._builder.state(results[place])
        return [*results[:place], self._builder.requirements.hold(first), *results[place + 1 :]]

    def _convert(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._module)
        defines = str(node.target) in _DEFINE_SIZES
        if is_size(node) and not defines:
            return node.meta["val"]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        folded = _fold(node, args, kwargs)
        if folded is not None:
            return folded
        self._builder.node = node
        if not is_complex(node) and _is_empty(node.meta.get("val")):
            b = self._builder
            return b.emit(relax.op.zeros(relax.ShapeExpr(b.result_shape), b.dtype))
        result = self._converted(node, args, kwargs)
        if defines and result is None:
            return node.meta["val"]
        if isinstance(result, tuple):
            return tuple(None if r is None else self._bound(r) for r in result)
        return self._bound(result)

    def _converted(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        """Call the node's converter; those that take a number for a Python one cannot read it."""
        try:
            return _converters(node)[str(node.target)](self._builder, *args, **kwargs)
        except RelaxcError:
            raise
        except Exception as fault:
            given = [argument.meta.get("val") for argument in node.all_input_nodes]
            if any(isinstance(value, torch.SymFloat | torch.SymBool) for value in given):
                what = "a number that only the data decides as this argument"
                raise self._builder.unsupported(what) from fault
            # Relax's deduction of shapes and types speaks here, as eager would when it runs.
            lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
            reason = f"{type(fault).__name__}: {lines[-1] if lines else ''}"
            raise InvalidModel(
                f"{node.target} cannot be imported: {reason}{source_line(node)}", node=node.name
            ) from fault

    def _bound(self, value: Any) -> Any:
        """Bind a converter's result to a variable, unless it is one, or no expression at all."""
        if isinstance(value, relax.Var) or not isinstance(value, relax.Expr):
            return value
        return self._builder.emit(value)


def is_size(node: torch.fx.Node) -> bool:
    """Return whether `node` computes a size or another Python scalar, not a tensor."""
    scalars = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(node.meta.get("val"), scalars)


def _is_empty(value: Any) -> bool:
    """Tell whether a node's one result has no elements: whatever the operator, it is done."""
    if not isinstance(value, torch.Tensor) or not all(isinstance(s, int) for s in value.shape):
        return False  # the operator may define a symbol of the shape
    return 0 in value.shape


def live_nodes(graph: torch.fx.Graph, wanted: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return the nodes that `wanted` depend on, in order, and asserts.

    A node that gives a symbol its value is kept too: others know the symbol by its name alone.
    """
    kept = [n for n in graph.nodes if str(n.target) in ASSERTS or _defines_symbol(n)]
    stack = [*wanted, *kept]
    live: set[torch.fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return [node for node in graph.nodes if node in live]


def sizes_first(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return nodes with asserts of sizes of inputs first: what a user requires is told first."""
    early: dict[torch.fx.Node, None] = {}
    for node in nodes:
        is_early = is_size(node) or str(node.target) in ASSERTS
        if is_early and str(node.target) not in _DEFINE_SIZES:
            if all(n in early or n.op == "placeholder" for n in node.all_input_nodes):
                early[node] = None
    return [*early, *(node for node in nodes if node not in early)]


def _defines_symbol(node: torch.fx.Node) -> bool:
    """Tell whether a node's value holds a symbol that only the run's data decides."""
    if str(node.target) in (*_DEFINE_SIZES, *_DECIDE_LENGTH):
        return any(isinstance(s, torch.SymInt) for s in _sizes_of(node.meta.get("val")))
    return False


def _sizes_of(value: Any) -> list[Any]:
    value = value[0] if isinstance(value, tuple | list) else value
    return list(value.shape) if isinstance(value, torch.Tensor) else [value]


def with_subgraphs(
    nodes: Iterable[torch.fx.Node], module: torch.nn.Module
) -> Iterator[torch.fx.Node]:
    """Yield nodes of a graph and those of the graphs that operators hold, at any depth."""
    for node in nodes:
        yield node
        if node.op == "get_attr":
            held = operator.attrgetter(str(node.target))(module)
            if isinstance(held, torch.fx.GraphModule):
                (output,) = [n for n in held.graph.nodes if n.op == "output"]
                yield from with_subgraphs(live_nodes(held.graph, output.all_input_nodes), held)


def check_operators(nodes: Iterable[torch.fx.Node], module: torch.nn.Module) -> None:
    """Raise one error for all operators without a converter, each with its first source line.

    Args:
        nodes: Of a graph of `module`; graphs that operators hold are checked, too.
        module: What holds such graphs.

    Raises:
        UnsupportedOperator: Listing all of them.
    """
    missing: dict[str, torch.fx.Node] = {}
    for node in with_subgraphs(nodes, module):
        if node.op != "call_function" or is_size(node) or node.target is operator.getitem:
            continue
        if str(node.target) not in _converters(node) and not _is_table(node):
            missing.setdefault(str(node.target), node)
    if missing:
        listed = "; ".join(f"{name}{source_line(node)}" for name, node in missing.items())
        raise UnsupportedOperator(
            f"{len(missing)} ATen operator(s) have no converter: {listed}",
            node=next(iter(missing.values())).name,
        )


def check_layout(tensor: torch.Tensor, name: str) -> None:
    """Refuse tensors that are not dense.

    Raises:
        UnsupportedOperator: Naming the tensor and its layout.
    """
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise UnsupportedOperator(f"a tensor of layout {kind}: only dense ones", tensor=name)


def _is_table(node: torch.fx.Node) -> bool:
    """Tell whether a node makes a small tensor of numbers alone: torch evaluates it, once."""
    value = node.meta.get("val")
    if node.all_input_nodes or is_random(node.target) or not isinstance(value, torch.Tensor):
        return False
    static = all(isinstance(size, int) for size in value.shape)
    return static and value.nbytes <= FOLD_LIMIT_BYTES


def _converters(node: torch.fx.Node) -> Mapping[str, Converter]:
    return COMPLEX_REGISTRY if is_complex(node) else REGISTRY


def _fold(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    """Evaluate `node` with torch if all it takes is constant; None if it has to stay."""
    if is_random(node.target):
        return None
    leaves = pytree.tree_leaves((args, kwargs))
    known = (torch.Tensor, int, float, complex, bool, str, type(None), torch.dtype, torch.device)
    layout = (torch.layout, torch.memory_format)
    if not all(isinstance(leaf, known + layout) for leaf in leaves):
        return None
    results = [r for r in pytree.tree_leaves(node.meta.get("val")) if isinstance(r, torch.Tensor)]
    if not results or any(isinstance(size, torch.SymInt) for r in results for size in r.shape):
        return None
    taken = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
    if sum(r.nbytes for r in results) > max(taken, FOLD_LIMIT_BYTES):
        return None
    assert callable(node.target)
    with torch.no_grad():
        return node.target(*args, **kwargs)
