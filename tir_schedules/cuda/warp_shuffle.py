"""Exchange of registers between the lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.cuda.threads import WARP


def shuffled(value: Any, distance: int, dtype: str = "float32") -> Any:
    """Return the value of the lane whose number differs in the bits of `distance`."""
    other = T.alloc_buffer((1,), dtype, scope="local")
    shuffle = getattr(T.cuda, "__shfl_xor_sync")  # noqa: B009  # a class would mangle it
    every = tirx.const(0xFFFFFFFF, "uint32")
    T.buffer_store(other, shuffle(every, value, distance, WARP), [0])
    return other[0]


def combine_lanes(values: Any, at: int, combine: Callable[[Expr, Expr], Expr]) -> None:
    """Emit what combines element `at` of a register buffer over the lanes of a warp."""
    for distance in (16, 8, 4, 2, 1):
        other = shuffled(values[at], distance, str(values.dtype))
        T.buffer_store(values, combine(values[at], other), [at])
