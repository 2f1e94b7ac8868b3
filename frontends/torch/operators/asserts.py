"""Asserts: of users (`torch._assert`, `torch._check`, `assert`), and of torch's own operators."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from frontends.errors import InvalidModel
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
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
    """Let the run fail with torch's message unless the condition holds."""
    known = _known(b, condition)
    if known is None:
        b.requirements.add(b.tensor(condition, "bool"), message + source_line(b.node))
    elif not known:
        raise InvalidModel(message + source_line(b.node), node=b.node.name)


def _known(b: GraphBuilder, condition: Value) -> bool | None:
    """Return a condition that does not depend on the run, None for another one."""
    if isinstance(condition, torch.Tensor | bool | int | float):
        return bool(condition)
    if not isinstance(condition, torch.SymBool) or b.numbers.holds(condition.node.expr):
        return None
    # Of sizes of inputs alone: what torch took for given while it traced. Bounds of single sizes
    # are checked where the inputs are; code for symbolic sizes needs nothing else.
    return b.symbols.known_truth(condition) if free_unbacked_symbols(condition) else True
