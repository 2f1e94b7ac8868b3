"""Bind a value in the place of a variable of the function that is being rewritten."""

from __future__ import annotations

from tvm import relax


def emit_as(
    builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr, name: str = ""
) -> relax.Var:
    """Bind `value` where `var` was: as a result of the dataflow block if `var` is one.

    Outside of dataflow blocks no variable is local to one, and none is a result of one.
    """
    local = isinstance(var, relax.DataflowVar) or not builder.current_block_is_dataflow()
    return (builder.emit if local else builder.emit_output)(value, name)
