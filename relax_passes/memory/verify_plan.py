"""Check a memory plan without trusting the planner: liveness is recomputed from the program.

The check reads the planned Relax function alone. It replays the allocations and calls of `main`
(`replay_plan.py`), finds for each arena tensor the span from its first write to the last read of it
or of any view or tuple that holds it, and reports every pair that shares bytes and time. A kernel
that writes over what it reads is given one tensor, once: two at the same bytes are a fault.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.memory.arena_tensor import ArenaTensor
from relax_passes.memory.replay_plan import Replay
from relax_passes.memory.verify_offsets import OverlapError


def verify_plan(func: relax.Function, mod: tvm.IRModule | None = None) -> None:
    """Check that no two live tensors of a planned function overlap in the arena.

    Args:
        func: A planned function.
        mod: Its module. What a kernel writes is then read from its loops, and a result in place is
            checked against the other names of its bytes.

    Raises:
        OverlapError: Naming the two tensors and the bytes they share, or a tensor that lies
            outside its storage or its source, is misaligned, is read before all of it is written,
            is read by another name after it was overwritten, or leaves the function; or a kernel
            that writes over a parameter or a constant.
    """
    replay = Replay(func, mod)
    for block in func.body.blocks:
        for binding in block.bindings:
            replay.step(binding)
    for name in replay.in_arena(func.body.body):
        raise OverlapError(f"{name} lies in the arena but is returned")
    _check_pairs(replay.tensors)


def _check_pairs(tensors: list[ArenaTensor]) -> None:
    """Compare all pairs whose spans meet; views share a tensor's bytes and are merged first."""
    live = sorted((t for t in tensors if t.first is not None), key=lambda t: t.first or 0)
    active: list[ArenaTensor] = []
    for tensor in live:
        start = tensor.first or 0
        active = [t for t in active if t.last >= start]
        for other in active:
            if tensor.storage is None or other.storage != tensor.storage:
                continue
            if other.offset >= tensor.offset + tensor.size:
                continue
            if tensor.offset >= other.offset + other.size:
                continue
            raise OverlapError(
                f"{other.name} (live {other.first}..{other.last}) and {tensor.name} "
                f"(live {tensor.first}..{tensor.last}) share bytes from "
                f"{max(other.offset, tensor.offset)}"
            )
        active.append(tensor)
