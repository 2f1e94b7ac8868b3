"""Loops of hand-written kernels, each with what may run it.

A kernel is written once, as plain loops that are right when run one after the other. A loop that
may run otherwise says so by an annotation, which the schedule rule of a target turns into the loop
kind it has; a loop without one carries state and keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import AllocBuffer, BufferStore, For, ForKind, SeqStmt, Stmt

RUN_AS = "run_as"  # annotation key; the value is one of the roles below
WORK = "work"  # annotation key: multiply-adds of one iteration, where known
CORES = "cores"  # iterations are independent and long
LANES = "lanes"  # iterations are independent, short, and touch consecutive elements
UNROLL = "unroll"  # few iterations, which index registers


def index(value: Any) -> Any:
    """Return a size or an index as int64 expression."""
    return tirx.const(value, "int64") if isinstance(value, int) else value


def loop(
    extent: Any, body: Callable[[Any], Stmt], run_as: str = "", work: int = 0, name: str = "i"
) -> Stmt:
    """Return `for name in range(extent): body(name)`; `run_as` says how it may run."""
    variable = tirx.Var(name, "int64")
    notes = {RUN_AS: run_as, WORK: work} if run_as else None
    return For(variable, index(0), index(extent), ForKind.SERIAL, body(variable), annotations=notes)


def store(buffer: Any, value: Any, *place: Any) -> Stmt:
    """Return `buffer[place] = value`."""
    return BufferStore(buffer, value, [index(item) for item in place])


def load(buffer: Any, *place: Any) -> Any:
    """Return `buffer[place]`."""
    return buffer[tuple(index(item) for item in place)]


def local(shape: tuple[int, ...], dtype: str, name: str) -> Any:
    """Return a small buffer of one thread's own, to be declared by `block`."""
    return tirx.decl_buffer(shape, dtype, name, scope="local")


def block(statements: list[Stmt], locals_: tuple[Any, ...] = ()) -> Stmt:
    """Return the statements in order, after the declarations of the local buffers."""
    together = [*(AllocBuffer(buffer) for buffer in locals_), *statements]
    return together[0] if len(together) == 1 else SeqStmt(together)
