"""Turn what goes wrong while a model runs into a `RunError` that names the tensor and the file."""

from __future__ import annotations

import re

import relax_passes.memory.size_fault  # noqa: F401 - what compiled checks of sizes call
from relaxc.errors import RunError

# How kernels name the place of a fault: "... (tensor 'y')", "... (node 'n', tensor 'y')".
_PLACE = re.compile(r"\s*\((?:node '(?P<node>[^']*)')?(?:, )?(?:tensor '(?P<tensor>[^']*)')?\)$")
_THREAD = re.compile(r"^Task \d+ error: ")
_NO_MEMORY = ("std::bad_alloc", "out of memory", "CUDA_ERROR_OUT_OF_MEMORY")


def run_error(fault: Exception, file: str) -> RunError:
    """Return the error to raise for a fault of a call; chain `fault` as its cause.

    Args:
        fault: What the virtual machine or a kernel raised.
        file: The model's file, "" if it has none.
    """
    lines = [line.strip() for line in str(fault).strip().splitlines() if line.strip()]
    text = _THREAD.sub("", lines[-1]) if lines else type(fault).__name__
    if isinstance(fault, MemoryError) or any(sign in str(fault) for sign in _NO_MEMORY):
        return RunError("the call needs more memory than there is", file=file or None)
    place = _PLACE.search(text)
    if place is not None and place.group(0).strip() != "()":
        reason = text[: place.start()]
        return RunError(reason, node=place["node"], tensor=place["tensor"], file=file or None)
    return RunError(f"the call failed: {text}", file=file or None)
