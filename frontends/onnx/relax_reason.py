"""What Relax says of types that do not fit, without how it prints its own objects."""

from __future__ import annotations

import re

from frontends.dims import plain_text

# Relax prints a module's script before it comes to the point.
_SCRIPT = re.compile(r"^\s*# Metadata omitted\.[^\[]*\[[^\]]*\]\)\.\s*")
# The whole record of an operator, of which the name says all.
_OPERATOR = re.compile(r'ir\.Op\(.*?\bname="relax\.(?:nn\.)?(\w+)".*?\bsupport_level=\d+\)')
_TENSOR = re.compile(r'R\.Tensor\(\(([^()]*?),?\), dtype="(\w+)"\)')
_SHAPE = re.compile(r"R\.shape\((\[[^\]]*\])\)")
_DTYPE = re.compile(r"\bT\.(?=u?int\d+\b|b?float\d+\b|bool\b)")
_CALL = re.compile(r"\bR\.(?:nn\.)?(?=\w+\()")


def plain_reason(line: str) -> str:
    """Return the line of an error of Relax's type deduction from where it names the fault.

    Tensors are written as `float32[2, 3]`, shapes as `[2, 3]`, operators by their names.
    """
    if "ffi.BigInt" in line:
        return "a size that is computed does not fit 64 bits"
    text = plain_text(_OPERATOR.sub(r"\1", _SCRIPT.sub("", line)))
    text = re.sub(r"^\s*In \w+,\s*", "", text)  # the node's operator is named anyway
    text = _SHAPE.sub(r"\1", _TENSOR.sub(r"\2[\1]", text))
    return _CALL.sub("", _DTYPE.sub("", text)).strip().rstrip(".")
