"""The rule engine: an ordered list of rules; the first that does not decline takes the function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.machine import Machine

FAILED = "failed"  # how the reason of a rule that raised something else than `Decline` begins


class Decline(Exception):
    """Raised by a rule that does not apply; the text is the reason shown in the report."""


@dataclass(frozen=True)
class Rule:
    """A named schedule rule.

    `apply(func, machine)` returns the schedule of the whole function (its function is called
    `main`) or the scheduled function itself, or raises `Decline(reason)`. Any other exception also
    counts as a decline.
    """

    name: str
    apply: Callable[[PrimFunc, Machine], s_tir.Schedule | PrimFunc]


@dataclass(frozen=True)
class Scheduled:
    """A scheduled function, the rule that took it, and why each earlier rule declined."""

    func: PrimFunc
    rule: str
    declined: tuple[tuple[str, str], ...]


def apply_rules(func: PrimFunc, machine: Machine, rules: Iterable[Rule]) -> Scheduled:
    """Schedule `func` with the first rule that does not decline.

    Raises:
        RuntimeError: If every rule declines; the last rule of a list must take anything.
    """
    declined: list[tuple[str, str]] = []
    for rule in rules:
        try:
            applied = rule.apply(func, machine)
            scheduled = applied if isinstance(applied, PrimFunc) else applied.mod["main"]
        except Decline as reason:
            declined.append((rule.name, str(reason)))
        except Exception as fault:  # a rule may never abort a build: its fault is its reason
            lines = str(fault).strip().splitlines()
            declined.append((rule.name, f"{FAILED}: {lines[-1] if lines else repr(fault)}"))
        else:
            return Scheduled(scheduled, rule.name, tuple(declined))
    raise RuntimeError(f"no rule scheduled the function: {declined}")
