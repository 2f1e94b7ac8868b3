"""What a pass is: a named function from module to module, run in a context that takes its notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.target import Target

from tir_schedules.machine import Machine

PHASES = (
    "canonicalize",
    "raise",
    "rewrite",
    "precision",
    "layout",
    "lower",
    "fuse",
    "schedule",
    "memory",
)


@dataclass
class PassLog:
    """Facts the passes leave for the report."""

    fired: list[tuple[str, str]] = field(default_factory=list)  # (pass, what it did)
    declined: list[tuple[str, str, str]] = field(default_factory=list)  # (pass, subject, reason)
    metrics: dict[str, Any] = field(default_factory=dict)  # e.g. "arena_bytes"

    def fire(self, name: str, what: str) -> None:
        """Record that pass `name` did `what`."""
        self.fired.append((name, what))

    def decline(self, name: str, subject: str, reason: str) -> None:
        """Record that pass `name` left `subject` alone for `reason`."""
        self.declined.append((name, subject, reason))


@dataclass
class PassContext:
    """What a pass may ask: the target, its hardware model, the options, and where to take notes."""

    target: Target
    machine: Machine
    threads: int = 1
    precision: str = "float32"
    debug: bool = False
    log: PassLog = field(default_factory=PassLog)


PassFunction = Callable[[tvm.IRModule, PassContext], tuple[tvm.IRModule, bool]]


@dataclass(frozen=True)
class GraphPass:
    """A pass: `run(module, context)` returns the new module and whether it changed anything."""

    name: str
    phase: str
    run: PassFunction
    summary: str

    def __call__(self, mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        """Run the pass."""
        return self.run(mod, ctx)


REGISTRY: dict[str, GraphPass] = {}


def graph_pass(name: str, phase: str) -> Callable[[PassFunction], GraphPass]:
    """Register a function as the pass `name` of `phase`; its docstring's first line is its summary.

    Raises:
        ValueError: If the phase is unknown or the name is taken.
    """
    if phase not in PHASES:
        raise ValueError(f"pass {name!r}: unknown phase {phase!r}, expected one of {PHASES}")

    def register(run: PassFunction) -> GraphPass:
        if name in REGISTRY:
            raise ValueError(f"a pass called {name!r} is registered already")
        REGISTRY[name] = GraphPass(name, phase, run, (run.__doc__ or "").strip().split("\n")[0])
        return REGISTRY[name]

    return register
