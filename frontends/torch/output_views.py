"""Results of a graph that share memory: one tensor is computed, the others are views of it.

Eager lets a caller write through one result and read it in another. AOTAutograd takes care of views
of arguments; views of each other are still in the graph it hands over, and are replayed by torch.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class View:
    """One view operator: `target(tensor, *args, **kwargs)`."""

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def __call__(self, tensor: Any) -> Any:
        """Return the view of a tensor, or a part of several."""
        return self.target(tensor, *self.args, **dict(self.kwargs))


def shared_bases(outputs: Sequence[Any]) -> list[tuple[Any, tuple[View, ...]]]:
    """Return for each result what to compute, and the views to take of that, first one first.

    A result that shares its memory with no other one is computed as it is.
    """
    chains = [_chain(o) if isinstance(o, torch.fx.Node) else (o, ()) for o in outputs]
    uses = collections.Counter(base for base, _ in chains if isinstance(base, torch.fx.Node))
    return [
        (base, views) if isinstance(base, torch.fx.Node) and uses[base] > 1 else (output, ())
        for output, (base, views) in zip(outputs, chains, strict=True)
    ]


def _chain(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[View, ...]]:
    """Follow views with fixed arguments up to the tensor they are views of."""
    views: list[View] = []
    while _is_fixed_view(node):
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        views.insert(0, View(node.target, tuple(node.args[1:]), tuple(node.kwargs.items())))
        node = source
    if views and (node.op == "placeholder" or not isinstance(node.meta["val"], torch.Tensor)):
        return node, ()
    return node, tuple(views)


def _is_fixed_view(node: torch.fx.Node) -> bool:
    others = torch.fx.node.Node  # sizes that are computed stand for arguments, too
    rest = torch.utils._pytree.tree_leaves((node.args[1:], node.kwargs))
    if node.op != "call_function" or any(isinstance(leaf, others) for leaf in rest):
        return False
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, torch.fx.Node) and is_view(source.target)
    return is_view(node.target)


def is_view(target: Any) -> bool:
    """Tell whether an ATen operator returns a view of its first argument."""
    return isinstance(target, torch._ops.OpOverload) and bool(target.is_view)
