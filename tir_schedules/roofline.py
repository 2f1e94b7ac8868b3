"""The roofline estimate of a GPU kernel: how long it takes at least, and what binds it.

A kernel takes no less than its arithmetic at the rate of the units it multiplies with, nor than its
tensors, each read or written once, at the rate of the memory (Williams, Waterman and Patterson,
"Roofline: An Insightful Visual Performance Model", 2009). Latency, launches and what is read again
are left out: it is a bound, not a forecast.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm.ir import Call, StringImm
from tvm.tirx import PrimFunc

from tir_schedules.gpu import Gpu

MEMORY, CUDA_CORES, TENSOR_CORES = "memory", "CUDA cores", "Tensor Cores"

# Products of Tensor Cores by their operands' type, relative to those of float16.
_RATES = {"f16": 1.0, "bf16": 1.0, "tf32": 0.5}
_BYTES = ("s8", "u8")
# How many products of its instructions make one of the function, an attribute; 1 without it.
PARTS = "products_of_parts"


@dataclass(frozen=True)
class Roofline:
    """The bound of one call: seconds in all and of each limit, and the name of the longer one."""

    arithmetic_seconds: float
    memory_seconds: float
    units: str

    @property
    def seconds(self) -> float:
        """How long the kernel takes at least."""
        return max(self.arithmetic_seconds, self.memory_seconds)

    @property
    def bound(self) -> str:
        """What binds it: the memory, or the units it computes with."""
        return MEMORY if self.memory_seconds >= self.arithmetic_seconds else self.units


def roofline(func: PrimFunc, flops: int, moved: int, gpu: Gpu) -> Roofline:
    """Return the bound of a scheduled function.

    Args:
        func: It tells whether products run on Tensor Cores, and of which type.
        flops: Operations of a call; a multiply-add is two.
        moved: Bytes of its operands and results, each once.
        gpu: The GPU.
    """
    kind = _matrix_type(func)
    units = TENSOR_CORES if kind else CUDA_CORES
    matrix = gpu.byte_fmas if kind in _BYTES else gpu.matrix_fmas * _RATES.get(kind, 0)
    fmas = matrix if kind else gpu.float32_fmas
    parts = int(func.attrs[PARTS]) if func.attrs is not None and PARTS in func.attrs else 1
    rate = 2 * fmas / parts * gpu.multiprocessors * gpu.clock_hz
    return Roofline(flops / rate, moved / gpu.memory_bytes_per_second, units)


def _matrix_type(func: PrimFunc) -> str:
    """Return the type of the operands of a function's `mma` instructions, "" where it has none."""
    found: list[str] = []

    def visit(call: Call) -> None:
        if not found and getattr(call.op, "name", "") == "tirx.ptx.mma":
            words = [str(arg.value) for arg in call.args if isinstance(arg, StringImm)]
            found.extend(word for word in words if word in (*_RATES, *_BYTES))

    tvm_ffi.structural_walk(func.body, (Call, visit), order="pre")
    return found[0] if found else ""
