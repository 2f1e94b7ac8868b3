"""Where in the user's code an exported graph's nodes and conditions come from."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.proxy import TracerBase

_FRONTENDS = Path(__file__).parents[1]
# The folders of torch and of this compiler, with a separator at the end.
_NOT_USERS = tuple(
    os.path.join(folder, "")
    for folder in (os.path.dirname(torch.__file__), _FRONTENDS, _FRONTENDS.with_name("relaxc"))
)


def is_users(file: str) -> bool:
    """Tell whether a file of a stack is the user's.

    It is not where it is torch's, what wraps functions for it, or ours, which calls torch.
    """
    return not file.startswith((*_NOT_USERS, "<")) and os.path.basename(file) != "contextlib.py"


@contextmanager
def kept_stacks() -> Iterator[None]:
    """Have torch keep, while it exports, the whole chain of the user's calls.

    It keeps of a node's stack only functions that are called `forward`, and forgets the stacks of
    conditions on sizes at the end. Who is done with these calls `ShapeEnv.cleanup`.
    """
    with ExitStack() as stack:
        stack.enter_context(_replaced(TracerBase, "_filter_traceback_frames", _of_users))
        stack.enter_context(_replaced(ShapeEnv, "cleanup", lambda original: lambda env: None))
        yield


def _of_users(original: Callable[..., Any]) -> Callable[..., traceback.StackSummary]:
    def filtered(tracer: Any, stack: Sequence[traceback.FrameSummary]) -> traceback.StackSummary:
        """Return the frames from the user's first `forward` on, without those within torch."""
        first = next(
            (k for k, f in enumerate(stack) if f.name == "forward" and is_users(f.filename)), None
        )
        if first is None:
            return original(tracer, stack)
        kept = [f for f in stack[first:] if f.name == "forward" or is_users(f.filename)]
        return traceback.StackSummary.from_list(kept)

    return filtered


@contextmanager
def _replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a method meanwhile; a version of torch that has none does without."""
    original = owner.__dict__.get(name)
    if original is None:
        yield
        return
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
