"""Return what this process has freed to the system."""

from __future__ import annotations

import ctypes
import os


def return_free_memory() -> None:
    """Have the C library give back what was freed amid its heap; it keeps that otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
