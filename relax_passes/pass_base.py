"""What a pass is: a named function from module to module, run in a context that takes its notes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from relax_passes.pass_options import did_you_mean, replace_options
from tir_schedules.machine import Machine

if TYPE_CHECKING:
    from relax_passes.tuning.session import TuningSession

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
    """What a pass may ask: the target, its hardware model, the options, and where to take notes.

    `states` are pairs of numbers, a parameter of `main` and the result that is its next value.
    """

    target: Target
    machine: Machine
    threads: int = 1
    precision: str = "float32"
    debug: bool = False
    log: PassLog = field(default_factory=PassLog)
    tuning: TuningSession | None = None  # None: the cost models decide alone
    states: tuple[tuple[int, int], ...] = ()


# (module, context) or, for a pass with options, (module, context, options)
PassFunction = Callable[..., tuple[tvm.IRModule, bool]]


@dataclass(frozen=True)
class GraphPass:
    """A pass: called with a module and a context, it returns the module and whether it changed.

    `options` is an instance of the pass's frozen dataclass, None for a pass without options.
    """

    name: str
    phase: str
    run: PassFunction
    summary: str
    options: Any = None
    aliases: tuple[str, ...] = ()

    def __call__(self, mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        """Run the pass."""
        return self.run(mod, ctx) if self.options is None else self.run(mod, ctx, self.options)

    def with_options(self, **values: Any) -> GraphPass:
        """Return this pass with some options set, from typed values or their text.

        Raises:
            relax_passes.pass_options.OptionError: If there is no such option, or a value does not
                fit it.
        """
        if not values:
            return self
        return dataclasses.replace(self, options=replace_options(self.name, self.options, values))


REGISTRY: dict[str, GraphPass] = {}
ALIASES: dict[str, str] = {}


def graph_pass(
    name: str, phase: str, *, options: type | None = None, aliases: tuple[str, ...] = ()
) -> Callable[[PassFunction], GraphPass]:
    """Register a function as the pass `name` of `phase`; its docstring's first line is its summary.

    Args:
        name: A verb and its object, as in the name of the file.
        phase: The phase it is meant for.
        options: A frozen dataclass whose fields are made by `pass_options.option`; the function
            then takes an instance of it as its third argument.
        aliases: Other names by which the literature knows it, such as "cse".

    Raises:
        ValueError: If the phase is unknown or a name is taken.
    """
    if phase not in PHASES:
        raise ValueError(f"pass {name!r}: unknown phase {phase!r}, expected one of {PHASES}")

    def register(run: PassFunction) -> GraphPass:
        for taken in (name, *aliases):
            if taken in REGISTRY or taken in ALIASES:
                raise ValueError(f"a pass called {taken!r} is registered already")
        summary = (run.__doc__ or "").strip().split("\n")[0]
        values = None if options is None else options()
        REGISTRY[name] = GraphPass(name, phase, run, summary, values, aliases)
        ALIASES.update(dict.fromkeys(aliases, name))
        return REGISTRY[name]

    return register


def find_pass(name: str) -> GraphPass:
    """Return the registered pass of a name or an alias.

    Raises:
        ValueError: If there is none; the text proposes the closest name.
    """
    found = REGISTRY.get(ALIASES.get(name, name))
    if found is None:
        hint = did_you_mean(name, [*REGISTRY, *ALIASES])
        raise ValueError(
            f"no pass is called {name!r}{hint or '; `relaxc opt --list` names them all'}"
        )
    return found
