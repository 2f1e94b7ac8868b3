"""What runs a module of several samples: relaxc, and stock TVM beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tests.conformance.torch_operators.run_samples import Sample


class _Together(torch.nn.Module):
    """Several calls in one module."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self._samples = samples
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        results: list[Any] = []
        rest = list(tensors)
        for sample in self._samples:
            count = len(sample.tensors)
            results += sample.function(*rest[:count])
            rest = rest[count:]
        return results


def by_relaxc(samples: Sequence[Sample]) -> list[list[torch.Tensor]]:
    """Return the results of each sample as relaxc computes them."""
    import relaxc

    program, inputs = _export(samples)
    flat = relaxc.compile(program, threads=1)(*inputs)
    return _deal(samples, flat if isinstance(flat, tuple) else [flat])


def by_stock_tvm(samples: Sequence[Sample]) -> list[list[torch.Tensor]]:
    """Return the results of each sample as TVM's own importer and default pipeline give them."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    program, inputs = _export(samples)
    executable = tvm.compile(from_exported_program(program), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    flat = machine["main"](*[tvm.runtime.from_dlpack(t.contiguous()) for t in inputs])
    return _deal(samples, list(flat))


ENGINES: dict[str, Callable[[Sequence[Sample]], list[list[torch.Tensor]]]] = {
    "relaxc": by_relaxc,
    "tvm": by_stock_tvm,
}


def _export(samples: Sequence[Sample]) -> tuple[Any, tuple[torch.Tensor, ...]]:
    inputs = tuple(tensor for sample in samples for tensor in sample.tensors)
    with torch.no_grad():
        return torch.export.export(_Together(samples), inputs), inputs


def _deal(samples: Sequence[Sample], flat: Sequence[Any]) -> list[list[torch.Tensor]]:
    results = [_as_torch(result) for result in flat]
    parts = []
    for sample in samples:
        count = len(sample.expected)
        parts.append(results[:count])
        results = results[count:]
    return parts


def _as_torch(result: Any) -> torch.Tensor:
    if str(getattr(result, "dtype", "")) == "bfloat16" and isinstance(result, np.ndarray):
        return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(result) if hasattr(result, "__dlpack__") else torch.as_tensor(result)
