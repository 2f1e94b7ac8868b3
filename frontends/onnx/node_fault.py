"""Whose fault it is that a converter raised: the model's, or our own."""

from __future__ import annotations

from pathlib import Path

import frontends
from frontends.errors import CompileError, InvalidModel, RelaxcError
from frontends.onnx.relax_reason import plain_reason

# What Relax and NumPy raise of types and shapes that do not fit.
_OF_THE_MODEL = (ValueError, TypeError, LookupError, AssertionError, AttributeError,
                 ArithmeticError, RuntimeError)  # fmt: skip
# What Python raises where code takes a value for another kind of value.
_SLIPS = (TypeError, AttributeError, KeyError, NameError)
_OWN_CODE = str(Path(frontends.__file__).parent)


def fault_of(error: Exception) -> tuple[type[RelaxcError], str] | None:
    """Return whose fault an exception is, and the reason; None where nobody can tell."""
    if _is_our_fault(error):
        slip = f"{type(error).__name__}: {error}"
        return CompileError, f"a fault of relaxc in importing the node: {slip}"
    if not isinstance(error, _OF_THE_MODEL):
        return None
    # Relax's shape and type deduction speaks here: the model contradicts itself.
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = next((line for line in reversed(lines) if line.strip()), lines[-1])
    return InvalidModel, f"the node cannot be imported: {plain_reason(reason)}"


def _is_our_fault(error: Exception) -> bool:
    """Tell whether our own code slipped, and not what it called: that speaks of the model."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    own = frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OWN_CODE)
    return own and isinstance(error, _SLIPS)
