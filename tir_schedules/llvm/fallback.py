"""The last rule: leaves what no other rule takes as serial loops."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.machine import Machine
from tir_schedules.rule import Rule


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    return s_tir.Schedule(func)


RULE = Rule("fallback", _schedule)
