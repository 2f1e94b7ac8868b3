"""What the processor of this machine calls itself; TVM is not imported for it."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """Return what this processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
