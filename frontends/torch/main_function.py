"""The function `main` of an imported graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from frontends.dataflow_blocks import to_dataflow


def build_main(
    block: relax.BlockBuilder,
    parameters: Sequence[relax.Var],
    emit: Callable[[], list[relax.Expr]],
) -> tvm.IRModule:
    """Return a module whose `main` computes what `emit` emits and returns.

    Args:
        block: Builds the module; `emit` uses it too.
        parameters: Of `main`.
        emit: Emits the body; returns the results, one or several.
    """
    failure: Exception | None = None
    with block.function("main", list(parameters)):
        try:
            results = emit()
        except Exception as error:  # noqa: BLE001 - the open blocks are closed, then it is raised
            failure, results = error, [relax.const(0)]
        returned = results[0] if len(results) == 1 else relax.Tuple(results)
        if not isinstance(returned, relax.Var):
            returned = block.emit(returned, "outputs")
        block.emit_func_output(returned)
    if failure is not None:
        raise failure
    return to_dataflow(relax.transform.DeadCodeElimination(["main"])(block.get()))
