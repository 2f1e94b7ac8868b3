"""Loops and vector statements of a kernel that is written statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import Expr


def i64(value: Any) -> Expr:
    """Return a number or an expression as int64."""
    return tirx.const(value, "int64") if isinstance(value, int) else value.astype("int64")


def f32(value: float) -> Expr:
    """Return a float32 constant."""
    return tirx.const(value, "float32")


def serial(extent: Any) -> Any:
    """State a serial loop from 0."""
    return T.serial(i64(0), i64(extent))


@contextmanager
def when(condition: Expr | None) -> Iterator[None]:
    """State statements that run where `condition` holds; None for always."""
    if condition is None:
        yield
        return
    with T.If(condition), T.Then():
        yield


@contextmanager
def lanes_of(width: int) -> Iterator[Any]:
    """State a loop over the elements of one vector."""
    if width == 1:
        yield i64(0)
        return
    with T.vectorized(i64(0), i64(width)) as x:
        yield x


def fill(buffer: Any, width: int, value: Callable[[Any], Expr], *place: Any, at: Any = 0) -> None:
    """State `buffer[place, at + x] = value(x)` for the elements of one vector."""
    with lanes_of(width) as x:
        first = isinstance(at, int) and at == 0
        T.buffer_store(buffer, value(x), [*place, x if first else i64(at) + x])


def copy(target: Any, source: Any, width: int, *place: Any, at: int = 0) -> None:
    """State that one vector is stored."""
    fill(target, width, lambda x: source[x], *place, at=at)
