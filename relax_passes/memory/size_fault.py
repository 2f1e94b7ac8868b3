"""Raise the error of sizes that do not fit, with the numbers that a call had."""

from __future__ import annotations

import tvm_ffi

# Compiled models look the function up by this name, once a check fails.
SIZE_FAULT = "relaxc.size_fault"


@tvm_ffi.register_global_func(SIZE_FAULT)
def raise_size_fault(message: str, *sizes: int) -> None:
    """Raise a ValueError of a message with a `{}` for each of `sizes`."""
    raise ValueError(message.format(*sizes))
