"""What Relax says of types that do not fit, without how it prints its own objects."""

from __future__ import annotations

import re

from frontends.dims import plain_text

# Relax prints the whole record of the operator, or a module's script, before it comes to the point.
_PREFIX = re.compile(
    r"^\s*(?:In ir\.Op\(.*\bsupport_level=\d+\),\s*|# Metadata omitted\.[^\[]*\[[^\]]*\]\)\.\s*)"
)


def plain_reason(line: str) -> str:
    """Return the line of an error of Relax's type deduction from where it names the fault."""
    if "ffi.BigInt" in line:
        return "a size that is computed does not fit 64 bits"
    return plain_text(_PREFIX.sub("", line)).strip().rstrip(".")
