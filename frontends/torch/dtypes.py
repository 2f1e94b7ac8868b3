"""TVM's names of torch's types, and numbers of them."""

from __future__ import annotations

import torch
from tvm import relax


def dtype_name(dtype: torch.dtype) -> str:
    """Return TVM's name of a torch dtype."""
    return str(dtype).removeprefix("torch.")


def part_dtype(dtype: torch.dtype) -> str:
    """Return TVM's name of a torch dtype, of a complex one that of its parts."""
    return dtype_name(dtype.to_real() if dtype.is_complex else dtype)


def number_constant(value: float, dtype: str) -> relax.Expr:
    """Return a number as a constant; an integer beyond the range wraps around, as torch casts."""
    if isinstance(value, int) and dtype.startswith(("int", "uint")):
        own = torch.iinfo(getattr(torch, dtype))
        value = (value - own.min) % (own.max - own.min + 1) + own.min
    return relax.const(value, dtype)
