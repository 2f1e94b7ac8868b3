"""Results of a graph that share memory: one tensor is computed, the others are views of it.

Eager lets a caller write through one result and read it in another. AOTAutograd takes care of views
of arguments; views of each other are still in the graph it hands over, and are replayed by torch.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from frontends.errors import UnsupportedOperator

# Where a call finds the value of a symbol: an argument of the graph, or one of its axes.
Places = Mapping[sympy.Symbol, tuple[int, int | None]]


class CalledSize:
    """A size that an expression of the arguments' sizes tells: known in a call."""

    def __init__(self, expression: sympy.Expr, places: Places) -> None:
        """Take an expression, and where its symbols are found."""
        self._expression = expression
        self._symbols = sorted(expression.free_symbols, key=str)
        self._places = [places[symbol] for symbol in self._symbols]
        self._value = functools.lru_cache(maxsize=64)(self._evaluated)

    def __call__(self, given: Sequence[Any]) -> int:
        """Return the size in a call with these arguments."""
        return self._value(
            *(
                given[place] if axis is None else given[place].shape[axis]
                for place, axis in self._places
            )
        )

    def _evaluated(self, *sizes: int) -> int:
        known = {s: sympy.Integer(n) for s, n in zip(self._symbols, sizes, strict=True)}
        return int(self._expression.xreplace(known))


@dataclass(frozen=True)
class View:
    """One view operator: `target(tensor, *args, **kwargs)`, sizes of a call among them."""

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def __call__(self, tensor: Any, given: Sequence[Any]) -> Any:
        """Return the view of a tensor, or a part of several, in a call with these arguments."""
        args, named = pytree.tree_map(
            lambda leaf: leaf(given) if isinstance(leaf, CalledSize) else leaf,
            (self.args, dict(self.kwargs)),
        )
        return self.target(tensor, *args, **named)


def symbol_places(placeholders: Iterable[torch.fx.Node]) -> Places:
    """Return where a call finds the value of each symbol, by the graph's arguments."""
    places: dict[sympy.Symbol, tuple[int, int | None]] = {}
    for place, node in enumerate(placeholders):
        value = node.meta.get("val")
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for axis, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                places.setdefault(size.node.expr, (place, axis))
    return places


def shared_bases(outputs: Sequence[Any], places: Places) -> list[tuple[Any, tuple[View, ...]]]:
    """Return for each result what to compute, and the views to take of that, first one first.

    A result that shares its memory with no argument and no other result is computed as it is.
    AOTAutograd may take the place of any other one in its storage for granted, so that a copy of
    its elements would not do.

    Args:
        outputs: The graph's results.
        places: Where sizes are found in a call.

    Raises:
        UnsupportedOperator: If only the data decides where a result lies in memory that it shares.
    """
    chains = [_chain(o, places) if isinstance(o, torch.fx.Node) else (o, ()) for o in outputs]
    uses = collections.Counter(base for base, _ in chains if isinstance(base, torch.fx.Node))

    def result(output: Any, base: Any, views: tuple[View, ...] | None) -> tuple[Any, Any]:
        is_node = isinstance(base, torch.fx.Node)
        if not is_node or (base.op != "placeholder" and uses[base] < 2):
            return output, ()
        if views is None:
            raise UnsupportedOperator(
                "a result that shares memory with others, at a place that only the data decides",
                node=output.name,
            )
        return base, views

    return [result(output, *chain) for output, chain in zip(outputs, chains, strict=True)]


def only_views(graph: torch.fx.Graph) -> bool:
    """Tell whether each result of a graph is an argument, a view of one, or no tensor."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    (output,) = [n for n in graph.nodes if n.op == "output"]
    bases = [base for base, _ in shared_bases(output.args[0], symbol_places(placeholders))]
    return all(not isinstance(b, torch.fx.Node) or b.op == "placeholder" for b in bases)


def _chain(node: torch.fx.Node, places: Places) -> tuple[torch.fx.Node, tuple[View, ...] | None]:
    """Follow views up to the tensor they are views of; None if only the data decides one."""
    views: list[View] = []
    known = True
    while _is_view_node(node):
        source, view = node.args[0], _view(node, places)
        assert isinstance(source, torch.fx.Node)
        if view is None:
            known = False
        else:
            views.insert(0, view)
        node = source
    return node, tuple(views) if known else None


def _view(node: torch.fx.Node, places: Places) -> View | None:
    """Return a view operator with its arguments, None where only the data decides one of them."""

    def known(leaf: Any) -> Any:
        size = leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf
        if isinstance(size, torch.SymInt):
            return CalledSize(size.node.expr, places)
        if isinstance(size, torch.Tensor | torch.SymFloat | torch.SymBool):
            raise KeyError(leaf)
        return size

    try:
        args, named = pytree.tree_map(known, (node.args[1:], dict(node.kwargs)))
    except KeyError:  # a symbol that no argument tells
        return None
    return View(node.target, tuple(args), tuple(named.items()))


def _is_view_node(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, torch.fx.Node) and is_view(source.target)
    return is_view(node.target)


def is_view(target: Any) -> bool:
    """Tell whether an ATen operator returns a view of its first argument."""
    return isinstance(target, torch._ops.OpOverload) and bool(target.is_view)
