"""Hand-written kernels whose loops say what may run them.

Such a kernel carries state in its outer loops, so that no rule could find out by itself which ones
may run in parallel; an annotation `run_as` on a loop does (`frontends/computations/loop_nest.py`).
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir
from tvm.tirx import For, ForKind, PrimFunc, Stmt

from tir_schedules.blocks import constant, new_schedule
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

# A parallel region costs about 4 us, in which one core does about this many multiply-adds whose
# weights come from the second-level cache; it must save more than it costs.
PARALLEL_MULTIPLY_ADDS = 250_000


def _kind(loop: For, machine: Machine) -> int:
    role, extent = str(loop.annotations["run_as"]), constant(loop.extent)
    if role == "lanes" and extent is not None and extent > 1:
        return ForKind.VECTORIZED
    if role == "unroll" and extent is not None:
        return ForKind.UNROLLED
    if role == "cores" and machine.cores > 1 and extent != 1:
        work = int(loop.annotations.get("work", 0)) * (extent or 1)
        if work >= PARALLEL_MULTIPLY_ADDS:
            return ForKind.PARALLEL
    return ForKind.SERIAL


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    found = [0]

    def assign(loop: For) -> Stmt:
        if "run_as" not in loop.annotations:
            return loop
        found[0] += 1
        kind = _kind(loop, machine)
        return For(loop.loop_var, loop.min, loop.extent, ForKind(kind), loop.body, step=loop.step)

    body = tvm_ffi.structural_map(func.body, (For, assign))
    if not found[0]:
        raise Decline("no loop says what may run it")
    return new_schedule(func.with_body(body))


RULE = Rule("annotated_loops", _schedule, needs_blocks=False)
