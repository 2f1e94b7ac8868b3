"""Small temporaries of CPU kernels on the stack.

TVM's lowering asks its run-time library for a temporary of 1 KiB or more, and LLVM cannot see
through that call: it does not know that nobody else reads the memory. A register tile there is
stored and loaded again around each instruction that might read memory, such as a prefetch, where
one on the stack stays in registers. Without the library, no allocation can fail or wait either.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import DataType, tirx
from tvm.tirx import AllocBuffer

from tir_schedules.blocks import constant, points

# TVM's lowering leaves an allocation with this annotation to code generation, which uses the stack.
_ON_STACK = "disable_lower_builtin"
# More than a register tile and what is transformed for it; little of the stack of any thread.
_MOST_BYTES = 16 << 10


@tirx.transform.prim_func_pass(opt_level=0)
def allocate_on_stack(
    func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Mark the allocations of a host function that fit the stack."""

    def mark(stmt: AllocBuffer) -> AllocBuffer:
        if not fits_stack(stmt.buffer):
            return stmt
        return AllocBuffer(stmt.buffer, {**stmt.annotations, _ON_STACK: tirx.const(True, "bool")})

    return func.with_body(tvm_ffi.structural_map(func.body, (AllocBuffer, mark)))


def fits_stack(buffer: tirx.Buffer) -> bool:
    """Return whether a temporary of a host function is small enough for the stack."""
    return 0 < buffer_bytes(buffer) <= _MOST_BYTES


def buffer_bytes(buffer: tirx.Buffer) -> int:
    """Return the bytes of a buffer; one unknown size is enough for a length beyond any limit."""
    elements = points([constant(size) for size in buffer.shape], unknown=8 * (_MOST_BYTES + 1))
    element = DataType(str(buffer.dtype))
    return -(-elements * element.lanes * element.bits // 8)
