"""Softmax and norms: reductions of a row followed by maps over it."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    raise Decline("not a row_kernel")


RULE = Rule("row_kernel", _schedule)
