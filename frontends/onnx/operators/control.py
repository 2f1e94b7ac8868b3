"""Control flow that is decided while importing."""

from __future__ import annotations

from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.value import Value


@converter("If")
def conditional(op: Op) -> list[Value]:
    """Import the branch that a known condition selects, in place."""
    condition = op.constant(0)
    if condition is None:
        raise op.unsupported("a condition that is known only at run time")
    branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return op.run_subgraph(op.attr(branch))
