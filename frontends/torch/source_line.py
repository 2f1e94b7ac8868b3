"""The user's line of code behind a node of a graph."""

from __future__ import annotations

import re

import torch

from frontends.torch.export_stacks import is_users

# How a stack tells a frame: its place, and then the code.
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in .*(?:\n\s+(?!File ")(?P<code>.*))?'
)


def source_line(node: torch.fx.Node) -> str:
    """Return ' (file:line: code)' of the user's innermost line that made `node`, or ''.

    A module of torch alone has no line of a user: then it is torch's.
    """
    frames = [match.groups() for match in _FRAME.finditer(node.stack_trace or "")]
    frames = [frame for frame in frames if is_users(frame[0])] or frames
    return told_line(*frames[-1]) if frames else ""


def told_line(file: str, line: int | str | None, code: str | None) -> str:
    """Return how messages tell a line of code."""
    return f" ({file}:{line}: {(code or '').strip()})"
