"""Time kernels against each other, as a network would call them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE

# Rounds in which each kernel runs once, in another order each time.
_ROUNDS = 9
# Within a network a kernel finds its input in the cache and its weights outside of it. So each call
# takes other copies of all operands but the first, of so many bytes together.
_COPIES_BYTES, _MOST_COPIES = 32 << 20, 32
# A call that is shorter is repeated, so that the clock's resolution does not count.
_SECONDS_A_SAMPLE = 1e-4
_MOST_REPEATS = 32


def measure_kernels(kernels: Sequence[PrimFunc], target: Target) -> list[list[float]]:
    """Return the seconds of a call of each scheduled kernel in each of some interleaved rounds.

    Raises:
        RuntimeError: If a kernel does not build.
    """
    named = {f"kernel{at}": kernel for at, kernel in enumerate(kernels)}
    module = tvm.IRModule(
        {name: func.with_attr("global_symbol", name) for name, func in named.items()}
    )
    library = tvm.compile(module, target=target, tir_pipeline=KERNEL_PIPELINE).jit()
    tensors: dict[tuple[tuple[int, ...], str, int], tvm.runtime.Tensor] = {}
    calls = [_Call(library[name], func, tensors) for name, func in named.items()]
    for call in calls:
        call.settle()
    samples: list[list[float]] = [[] for _ in calls]
    order = list(enumerate(calls))
    for turn in range(_ROUNDS):
        for at, call in order[turn % len(order) :] + order[: turn % len(order)]:
            samples[at].append(call.seconds())
    return samples


class _Call:
    """A kernel with operands of its own."""

    def __init__(
        self,
        function: tvm.runtime.Function,
        func: PrimFunc,
        tensors: dict[tuple[tuple[int, ...], str, int], tvm.runtime.Tensor],
    ) -> None:
        """Make the operands; kernels share `tensors` of a shape."""
        self._function, self._repeats = function, 1
        shapes = [
            (tuple(int(extent) for extent in buffer.shape), str(buffer.dtype))
            for buffer in func.params
        ]
        size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes[1:-1])
        copies = max(1, min(_MOST_COPIES, _COPIES_BYTES // max(1, size)))

        def tensor(at: int, copy: int) -> tvm.runtime.Tensor:
            shape, dtype = shapes[at]
            key = (shape, dtype, copy if 0 < at < len(shapes) - 1 else -1 - at)
            if key not in tensors:
                # Written, so that each has memory of its own.
                tensors[key] = tvm.runtime.tensor(np.full(shape, 0.5, dtype))
            return tensors[key]

        self._operands = itertools.cycle(
            [[tensor(at, copy) for at in range(len(shapes))] for copy in range(copies)]
        )

    def settle(self) -> None:
        """Call it once unmeasured, and choose how often a sample repeats it."""
        self._function(*next(self._operands))
        once = max(1e-9, self.seconds())
        self._repeats = max(1, min(_MOST_REPEATS, math.ceil(_SECONDS_A_SAMPLE / once)))

    def seconds(self) -> float:
        """Return the seconds of one call."""
        operands = [next(self._operands) for _ in range(self._repeats)]
        begin = time.perf_counter()
        for values in operands:
            self._function(*values)
        return (time.perf_counter() - begin) / self._repeats
