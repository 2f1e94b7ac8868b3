"""Operators that count equal elements, in terms of others: torch ships no decomposition of them."""

from __future__ import annotations

import torch


def mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, ...]:
    """The most frequent element along an axis, the least of several, and a place of it."""
    if not x.ndim:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    length, axis = x.shape[dim], dim % x.ndim
    ordered, places = torch.sort(x, dim=dim, stable=True)
    numbers = torch.arange(length).view([-1 if k == axis else 1 for k in range(x.ndim)])
    differs = ordered.narrow(dim, 1, length - 1) != ordered.narrow(dim, 0, length - 1)
    begins = torch.where(differs, numbers.narrow(dim, 1, length - 1), 0)
    first = torch.zeros_like(ordered.narrow(dim, 0, 1), dtype=torch.int64)
    begin = torch.cummax(torch.cat([first, begins], dim), dim).values
    best = torch.argmax(numbers - begin, dim, keepdim=True)  # where the longest run ends
    results = torch.gather(ordered, dim, best), torch.gather(places, dim, best)
    return results if keepdim else tuple(result.squeeze(dim) for result in results)


def histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """How many elements lie in each of `bins` parts of [min, max]; of their own range if equal."""
    # Half precision would round places, and holds no counts above 2048.
    flat = x.reshape(-1).to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    low, high = (torch.scalar_tensor(bound, dtype=flat.dtype) for bound in (min, max))
    if min == max and flat.numel():
        low, high = torch.aminmax(flat)
        is_finite = torch.isfinite(low) & torch.isfinite(high)
        told = "torch.histc: the range of the elements is not finite"
        torch.ops.aten._assert_async.msg(is_finite, told)
    if min == max:
        is_point = low == high
        low, high = torch.where(is_point, low - 1, low), torch.where(is_point, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    place = ((flat - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    return flat.new_zeros(bins).scatter_add(0, place, inside.to(flat.dtype)).to(x.dtype)


def frexp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mantissa in [0.5, 1) with the sign of x, and exponent, from the bits of the number."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    is_double = wide.dtype == torch.float64
    kind, bits, bias = (torch.int64, 52, 1022) if is_double else (torch.int32, 23, 126)
    mask = 2 * bias + 3  # all bits of an exponent
    is_small = wide.abs() < torch.finfo(wide.dtype).smallest_normal
    raised = torch.where(is_small, wide * 2.0 ** (bits + 2), wide)
    stored = raised.view(kind)
    exponent = ((stored >> bits) & mask) - bias - torch.where(is_small, bits + 2, 0)
    mantissa = ((stored & ~(mask << bits)) | (bias << bits)).view(wide.dtype)
    is_plain = torch.isfinite(wide) & (wide != 0)
    found = torch.where(is_plain, mantissa, wide).to(x.dtype)
    return found, torch.where(is_plain, exponent, 0).to(torch.int32)
