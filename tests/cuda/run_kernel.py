"""Run kernels under the emulator, in a process of their own, and compare them with NumPy.

    python -m tests.cuda.run_kernel softmax matmul [number of a barrier to drop]

Prints each kernel's largest error relative to the largest expected value; a fault the emulator
finds ends the process with its message.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda.emulator.install import install

BARRIER = "__syncthreads();"


def drop_barrier(number: int) -> Callable[[str], str]:
    """Return a mutation that removes the barrier of that number, in program order."""

    def mutate(source: str) -> str:
        places = [m.start() for m in re.finditer(re.escape(BARRIER), source)]
        at = places[number]
        return source[:at] + ";" + source[at + len(BARRIER) :]

    return mutate


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype("float64") - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu_of_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    s = x.astype("float64") + y
    return s / (1 + np.exp(-s))


Emit = Callable[..., Any]
CASES: dict[str, tuple[Emit, Callable[..., np.ndarray], list[tuple[int, ...]], str]] = {
    "elementwise": (
        lambda op, x, y: op.nn.silu(op.add(x, y)),
        gelu_of_sum,
        [(3, 37, 28), (37, 1)],
        "elementwise",
    ),
    "elementwise_odd": (
        lambda op, x, y: op.nn.silu(op.add(x, y)),
        gelu_of_sum,
        [(5, 7, 13), (13,)],
        "elementwise",
    ),
    "softmax": (lambda op, x: op.nn.softmax(x), softmax, [(7, 1000)], "row_kernel"),
    "softmax_short": (lambda op, x: op.nn.softmax(x), softmax, [(3, 5, 67)], "row_kernel"),
    "softmax_of_columns": (
        lambda op, x: op.nn.softmax(x, axis=0),
        lambda x: softmax(x.T).T,
        [(64, 64)],
        "fallback",
    ),
    "matmul": (lambda op, x, y: op.matmul(x, y), np.matmul, [(70, 45), (45, 131)], "contraction"),
    "matmul_batch": (
        lambda op, x, y: op.matmul(x, y),
        np.matmul,
        [(2, 3, 65, 32), (2, 3, 32, 17)],
        "contraction",
    ),
    "matmul_one_row": (
        lambda op, x, y: op.matmul(x, y),
        np.matmul,
        [(1, 64), (64, 300)],
        "contraction",
    ),
}


def run_case(name: str) -> float:
    """Return the largest error of one kernel, relative to the largest expected value."""
    import tvm
    from tvm import relax

    from tests.cuda.fused_function import fused_function
    from tests.cuda.ptxas import SM_80
    from tir_schedules import schedule_func

    emit, expected, shapes, rule = CASES[name]
    scheduled = schedule_func(fused_function(lambda *x: emit(relax.op, *x), shapes), SM_80)
    assert scheduled.rule == rule, scheduled.declined
    module = tvm.IRModule({"main": scheduled.func.with_attr("global_symbol", "main")})
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape, dtype="float32") for shape in shapes]
    want = expected(*[x.astype("float64") for x in inputs])
    device = tvm.cuda(0)
    arrays = [tvm.runtime.tensor(x, device) for x in inputs]
    arrays.append(tvm.runtime.tensor(np.full(want.shape, np.nan, "float32"), device))
    tvm.compile(module, target=SM_80)["main"](*arrays)
    return float(np.abs(arrays[-1].numpy() - want).max() / np.abs(want).max())


if __name__ == "__main__":
    *names, last = sys.argv[1:]
    install(drop_barrier(int(last)) if last.isdigit() else lambda source: source)
    for name in names if last.isdigit() else [*names, last]:
        print(f"error {name} {run_case(name)}", flush=True)
