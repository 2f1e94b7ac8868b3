"""The rule engine: an ordered list of rules; the first that does not decline takes the function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import PrimFunc

from tir_schedules.blocks import launches_threads
from tir_schedules.machine import Machine

FAILED = "failed"  # how the reason of a rule that raised something else than `Decline` begins
_NO_BLOCKS = "its loops have no compute blocks, as those of a scan or of a check of indices"
_WRITTEN = "its loops are written for threads already, as those of a sort"


class Decline(Exception):
    """Raised by a rule that does not apply; the text is the reason shown in the report."""


@dataclass(frozen=True)
class Rule:
    """A named schedule rule.

    `apply(func, machine)` returns the schedule of the whole function (its function is called
    `main`) or the scheduled function itself, or raises `Decline(reason)`. Any other exception
    also counts as a decline. A rule is not asked, since a schedule takes time to make, about a
    function without one block of its `tag`, without blocks or with threads, unless it takes loops
    as they are. One that writes the instructions of some kinds of target names them in `kinds`;
    () fits any.
    """

    name: str
    apply: Callable[[PrimFunc, Machine], s_tir.Schedule | PrimFunc]
    tag: str = ""  # the attribute "schedule_rule" of the block it is made for; "": any
    needs_blocks: bool = True
    kinds: tuple[str, ...] = ()


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
    tags = _block_tags(func)
    written = launches_threads(func)
    if written or not tags:
        rules = [rule for rule in rules if not rule.needs_blocks]
        declined.append(("rules of blocks", _WRITTEN if written else _NO_BLOCKS))
    for rule in rules:
        if rule.kinds and machine.kind not in rule.kinds:
            reason = f"writes instructions of {' and '.join(rule.kinds)}, this is {machine.kind}"
            declined.append((rule.name, reason))
            continue
        if rule.tag and tags[rule.tag] != 1:
            declined.append((rule.name, f"has {tags[rule.tag]} blocks tagged {rule.tag}"))
            continue
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


def _block_tags(func: PrimFunc) -> Counter[str]:
    """Count the compute blocks by the rule that each asks for, "" where it asks for none.

    The block around a whole function computes nothing, whatever its name: statements that were
    written as loops have one called after the function.
    """
    tags: Counter[str] = Counter()
    root = func.body.block if isinstance(func.body, SBlockRealize) else None

    def visit(block: SBlock) -> None:
        if root is None or not block.same_as(root):
            tags[str(block.annotations.get("schedule_rule", ""))] += 1

    tvm_ffi.structural_walk(func.body, (SBlock, visit), order="pre")
    return tags
