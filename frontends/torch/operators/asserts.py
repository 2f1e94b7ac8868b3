"""Asserts: of users (`torch._assert`, `torch._check`, `assert`), and of torch's own operators."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from frontends.errors import InvalidModel
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.size_guards import QUOTED, Told
from frontends.torch.source_line import source_line

# Nodes that no result depends on, but whose conditions a run has to check.
ASSERTS = (
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
)


@converter(*ASSERTS)
def require(
    b: GraphBuilder,
    condition: Value,
    message: str = "Expected Tensor with single nonzero value, but got zero",
) -> None:
    """Let the run fail with the user's message, or torch's, unless the condition holds."""
    told = b.guards.told(b.node, message) if b.guards else Told(message, source_line(b.node))
    if told is None:
        return
    known = _known(b, condition)
    if known is None and _is_of_inputs(condition):
        b.sizes.require(b.node, b.symbols.condition(condition), told.reason)
    elif known is None:
        b.requirements.add(b.tensor(condition, "bool"), told.reason(_shown(message)))
    elif not known:
        raise InvalidModel(told.reason(_shown(message)), node=b.node.name)


def _shown(message: str) -> str:
    """Return a condition as torch's message quotes it."""
    quoted = QUOTED.match(message)
    return quoted["condition"] if quoted else message


def _is_of_inputs(condition: Value) -> bool:
    """Tell whether a condition is one on sizes of inputs alone."""
    return isinstance(condition, torch.SymBool) and not free_unbacked_symbols(condition)


def _known(b: GraphBuilder, condition: Value) -> bool | None:
    """Return a condition that does not depend on the run, None for another one."""
    if isinstance(condition, torch.Tensor | bool | int | float):
        return bool(condition)
    if not isinstance(condition, torch.SymBool) or b.numbers.holds(condition.node.expr):
        return None
    if b.guards is None and _is_of_inputs(condition):
        return True  # Dynamo has compiled anew where it does not hold
    return b.symbols.known_truth(condition)
