"""Keep Python's cycle collector from scanning the whole process while a large model is imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the cycle collector; then collect what was made meanwhile, and nothing older.

    An import makes many objects that stay and few cycles. Each time a quarter more objects are
    alive, the collector scans all modules that are loaded, torch and TVM among them: a cost that
    large models pay and small ones do not. It would catch up at the first object that is made
    after the pause.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.collect(0)
            gc.enable()
