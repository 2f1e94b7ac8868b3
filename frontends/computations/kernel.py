"""Write a sequential algorithm (sort, scan, selection) as one TIR kernel of a few tensors.

What a tensor expression cannot say (a result read back, a loop that ends by what it finds, a store
at a computed place) is written with statements here. Such a kernel is opaque to fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import te, tirx
from tvm.ir import StringImm
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from frontends.dims import as_dim, is_static

Shape = Sequence[Any]
Body = Callable[[list[Any], list[Any]], None]


def kernel(
    inputs: Sequence[te.Tensor],
    outputs: Sequence[tuple[Shape, str]],
    body: Body,
    name: str,
) -> list[te.Tensor]:
    """Return the tensors that a kernel writes.

    Args:
        inputs: The tensors it reads.
        outputs: Shape and dtype of each tensor it writes; it may read them back, and unused ones
            serve as scratch memory.
        body: Gets the input and the output arrays and states the computation, in the `T` of the
            TIR builder; an array is indexed by all of its axes or by one flat index.
        name: Of the kernel, for reports.
    """

    def build(ins: list[Any], outs: list[Any]) -> Any:
        with IRBuilder() as builder:
            with T.attr(0, "statements", StringImm(name)):  # one parent for several statements
                body([_array(b) for b in ins], [_array(b) for b in outs])
            return builder.get()

    result = te.extern(
        [tuple(shape) for shape, _ in outputs],
        list(inputs),
        build,
        dtype=[dtype for _, dtype in outputs],
        name=name,
    )
    return list(result) if isinstance(result, list | tuple | tvm.ir.Array) else [result]


class _Empty:
    """An array without elements: a flat index into it would be divided by its sizes, by 0."""

    def __init__(self, array: Any, rank: int) -> None:
        self._array, self._rank = array, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._array, name)

    def __getitem__(self, place: Any) -> Any:
        return self._array[self._full(place)]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._array[self._full(place)] = value

    def _full(self, place: Any) -> Any:
        return place if isinstance(place, tuple) else (0,) * self._rank


def _array(buffer: Any) -> Any:
    """Return what a kernel's body reads and writes a buffer through."""
    proxy = T.buffer_proxy(buffer)
    empty = any(is_static(dim) and dim == 0 for dim in map(as_dim, buffer.shape))
    return _Empty(proxy, len(buffer.shape)) if empty else proxy


class Scalar:
    """A local variable of a kernel: `s()` reads it, `s.set(value)` writes it."""

    def __init__(self, value: Any, dtype: str = "int64") -> None:
        self._buffer = T.alloc_buffer([1], dtype, scope="local")
        self._dtype = dtype
        self.set(value)

    def __call__(self) -> Any:
        """Return the value as expression."""
        return self._buffer[tirx.IntImm("int32", 0)]

    def set(self, value: Any) -> None:
        """Store a value."""
        T.buffer_store(self._buffer, as_dtype(value, self._dtype), [0])


def as_dtype(value: Any, dtype: str) -> Any:
    """Return a number or an expression as expression of `dtype`."""
    if isinstance(value, int | float | bool):
        return tirx.const(value, dtype)
    if not hasattr(value, "ty"):  # `a == b` is an expression only once it is asked to be one
        value = value.asobject()
    return value if str(value.ty) == dtype else value.astype(dtype)


def index(value: Any) -> Any:
    """Return a number or an expression as int64 expression."""
    return as_dtype(value, "int64")


def divided(place: Any, size: Any) -> tuple[Any, Any]:
    """Return quotient and remainder of a flat index by an axis's size.

    By 1 where the axis is known to have no elements: what would be divided never runs.
    """
    divisor = as_dim(size)
    divisor = index(1) if is_static(divisor) and divisor == 0 else index(size)
    return tirx.floordiv(place, divisor), tirx.floormod(place, divisor)


def product(dims: Sequence[Any]) -> Any:
    """Return the number of elements of a shape as int64 expression."""
    total: Any = tirx.IntImm("int64", 1)
    for dim in dims:
        total = total * index(dim)
    return total


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """State statements that run only where `condition` holds."""
    with T.If(condition), T.Then():
        yield


def serial(extent: Any) -> Any:
    """Return a loop over [0, extent) of int64."""
    return T.serial(index(0), index(extent))


def parallel(extent: Any) -> Any:
    """Return a loop over [0, extent) of int64 whose iterations are independent."""
    return T.parallel(index(0), index(extent))
