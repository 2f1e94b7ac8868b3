"""Every error relaxc raises on purpose; all derive from `RelaxcError`."""

from __future__ import annotations

from frontends.errors import (
    CompileError,
    InvalidInput,
    InvalidModel,
    RelaxcError,
    UnsupportedOperator,
)

__all__ = [
    "CompileError",
    "IncompatibleArtifact",
    "InvalidInput",
    "InvalidModel",
    "RelaxcError",
    "RunError",
    "UnsupportedOperator",
    "UnsupportedTarget",
]


class UnsupportedTarget(RelaxcError):
    """No code can be made for a target here: a code generator, a linker or a library is missing."""


class RunError(RelaxcError):
    """A call failed in the model: sizes, indices or memory that only the data decides do not fit.

    The model is as usable as before. What the virtual machine or a kernel raised is chained.
    """


class IncompatibleArtifact(RelaxcError):
    """A compiled file is of another version, target or CPU, is cut short, or is not relaxc's."""
