"""Drop known noise that C++ code writes straight to file descriptor 2."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()


@contextmanager
def without_stderr_lines(*noise: str) -> Iterator[None]:
    """Hold back what is written to fd 2 inside the block and pass on all lines without `noise`.

    TVM logs through the file descriptor, so replacing `sys.stderr` would not catch it.

    Args:
        noise: Substrings; a line that contains one of them is dropped.
    """
    with _LOCK, tempfile.TemporaryFile() as held:
        try:
            sys.stderr.flush()
            saved = os.dup(2)
        except (AttributeError, OSError, ValueError):  # no stderr in this process: nothing to hold
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held.read().splitlines(keepends=True):
                if not any(text.encode() in line for text in noise):
                    os.write(2, line)
