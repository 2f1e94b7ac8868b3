"""A larger share of the cores for a measuring process on a machine that others use."""

from __future__ import annotations

import os
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
_MOST = "-20"


def claim_cores() -> bool:
    """Give this process a session of its own with the largest share of the cores.

    Linux divides cores among sessions before it looks at `nice` (autogroups): two threads of a
    benchmark may share one core while another session hardly uses the second. Where the system has
    no autogroups, or the user may not raise the share, nothing changes.

    Returns:
        Whether the share was raised.
    """
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        _AUTOGROUP.write_text(_MOST)
    except OSError:
        return False
    return True
