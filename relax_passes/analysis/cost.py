"""What a kernel costs: floating-point operations and bytes that cross its boundary."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import IntImm, PrimFunc
from tvm.tirx.buffer import BufferType


def kernel_cost(func: PrimFunc) -> tuple[int, int]:
    """Return (FLOPs, bytes read and written once) of an unscheduled PrimFunc.

    Symbolic sizes count as 1; multiply-add counts as two FLOPs; a loop nest that TVM's counter
    cannot see through (data-dependent bounds) counts as no FLOPs.
    """
    try:
        flops = int(s_tir.analysis.estimate_tir_flops(_without_let(func.body)))
    except (ValueError, TypeError, RuntimeError):
        flops = 0
    moved = 0
    for buffer in func.params:
        if not isinstance(buffer.ty, BufferType):
            continue
        shape = [int(dim.value) if isinstance(dim, IntImm) else 1 for dim in buffer.shape]
        moved += math.prod(shape) * tvm.runtime.DataType(str(buffer.dtype)).itemsize
    return flops, moved


def _without_let(body: tirx.Stmt) -> tirx.Stmt:
    """Turn `let v = value in result` into `value + result`: TVM's counter knows no let."""

    def flatten(let: tirx.Let) -> tirx.Expr:
        return let.value + let.body if let.value.ty == let.body.ty else let.body

    return tvm_ffi.structural_map(body, (tirx.Let, flatten))
