"""Conditions on sizes that torch noted while it exported: what they are for, in the user's words.

torch notes every question about a size that it answered: what a user or an operator requires, which
branch was taken, and how tensors lie in memory. A graph that was traced is right only where the
first two hold. The last is no part of a functional graph, and must not refuse a size.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from frontends.torch.check_messages import check_at, message_of
from frontends.torch.export_stacks import is_users
from frontends.torch.source_line import source_line, told_line

# How torch's assert of a condition quotes it.
QUOTED = re.compile(r"Runtime assertion failed for expression (?P<condition>.*) on node '")

# Where torch asks on behalf of others.
_ASKING = ("torch/__init__.py", "torch/fx/experimental/", "torch/utils/_stats.py")

# Where a view looks for strides that do without a copy.
_LAYOUT = ("_reshape_view_helper", "_reshape_view_helper_core_alg", "_collapse_view_helper")

# The one question that may be answered either way of which the graph depends on the answer: whether
# a slice ends within the axis.
_CLAMPED = "_compute_slice_index"

Frames = Sequence[traceback.FrameSummary]


class SizeGuards:
    """The conditions of one exported program."""

    def __init__(self, program: ExportedProgram) -> None:
        """Read them, and have torch forget its stacks."""
        self._stacks: dict[Any, Frames] = {}
        values = (node.meta.get("val") for node in program.graph.nodes)
        modes = (getattr(value, "fake_mode", None) for value in values)
        env = next((mode.shape_env for mode in modes if mode is not None), None)
        if env is None:
            return
        for noted in env.deferred_runtime_asserts.values():
            for one in noted:
                if frames := one.stack.summary():
                    for key in {str(one.expr), _bound(one.expr)} - {None}:
                        self._stacks.setdefault(key, frames)
        env.cleanup()

    def told(self, node: torch.fx.Node, message: str) -> Told | None:
        """Return what to say where the condition of an assert does not hold.

        A program that comes from elsewhere has no stacks: all of its asserts are torch's own.

        Args:
            node: An assert.
            message: torch's own message.

        Returns:
            None for a condition that the graph does not depend on.
        """
        quoted = QUOTED.match(message)
        words = "" if quoted else message
        condition = node.args[0]
        value = condition.meta.get("val") if isinstance(condition, torch.fx.Node) else None
        frames = self._stacks.get(quoted["condition"]) if quoted else None
        frames = frames or self._stacks.get(_bound(getattr(value, "node", None)))
        if frames is None:
            return Told(words, source_line(node))
        asker = _asker(frames)
        if asker is None:
            return None
        own = [frame for frame in frames if is_users(frame.filename)]
        if not own:
            return Told(words, source_line(node))
        last = own[-1]
        line = told_line(last.filename, last.lineno, last.line)
        statement = check_at(last.filename, last.lineno) if asker is last else None
        is_branch = asker is last and statement is None
        return Told(words or message_of(statement), line, is_branch)


@dataclass(frozen=True)
class Told:
    """What an error says of a condition.

    Attributes:
        words: Its message; "" where it has none.
        line: The user's line, as `source_line` tells it.
        is_branch: Whether nobody required it: the code branches there.
    """

    words: str
    line: str
    is_branch: bool = False

    def reason(self, condition: str) -> str:
        """Return the message of an error."""
        stated = f"it does not hold that {condition}"
        if self.is_branch:
            stated = f"torch traced the branch that is taken where {condition}"
        return (self.words or stated) + self.line


def _asker(frames: Frames) -> traceback.FrameSummary | None:
    """Return who asked; None for a question about memory."""
    asker = next(k for k, f in reversed([*enumerate(frames)]) if not _is_asking(f.filename))
    frame, inner = frames[asker], [f.name for f in frames[asker + 1 :]]
    if is_users(frame.filename) or "expect_true" in inner:
        return frame
    either = any(name.startswith("guard_or_") or name == "guard_size_oblivious" for name in inner)
    if either:
        return frame if frame.name == _CLAMPED else None
    about_memory = frame.name in _LAYOUT or "/_prims_common/" in frame.filename
    return None if about_memory else frame


def _is_asking(file: str) -> bool:
    return any(part in file for part in _ASKING)


def _bound(node: Any) -> tuple[str, str, int] | None:
    """Return a bound of a symbol as (symbol, side, integer): torch writes u < 5 as u <= 4, too."""
    expr = getattr(node, "expr", node)
    kind = type(expr).__name__
    if kind not in ("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"):
        return None
    (left, right), is_less = expr.args, kind.endswith("LessThan")
    if left.is_Integer:
        left, right, is_less = right, left, not is_less
    if not (left.is_Symbol and right.is_Integer):
        return None
    beyond = kind.startswith("Strict")
    return str(left), *(
        ("most", int(right) - beyond) if is_less else ("least", int(right) + beyond)
    )
