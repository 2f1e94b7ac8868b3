"""Compile one architecture by `relaxc.compile` and by `torch.compile`; compare with eager."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import torch

from tests.conformance.compare import one_line
from tests.conformance.torch_models.architectures import ARCHITECTURES

TOLERANCE = 1e-4  # of the largest number that eager gives


@dataclass(frozen=True)
class PathResult:
    """What became of one path: the error relative to eager's maximum, or why there is none."""

    error: float
    seconds: float
    graphs: int = 1
    reason: str = ""

    @property
    def passes(self) -> bool:
        """Tell whether the numbers are eager's."""
        return not self.reason and self.error <= TOLERANCE


def run_model(name: str) -> dict[str, PathResult]:
    """Return the results of both paths by their names: "export" and "torch.compile"."""
    warnings.simplefilter("ignore")
    module, inputs = ARCHITECTURES[name].build()
    with torch.no_grad():
        expected = module(*inputs)
        return {
            path: _run(run, module, inputs, expected)
            for path, run in (("export", _by_export), ("torch.compile", _by_dynamo))
        }


def _run(run, module, inputs, expected) -> PathResult:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    try:
        if not expected.isfinite().all() or not expected.any():
            raise ValueError("eager gives nothing to compare with: only zeros, or no numbers")
        result, graphs = run(module, inputs)
        error = float((result - expected).abs().max() / expected.abs().max())
    except Exception as fault:  # noqa: BLE001 - whatever is raised is this path's outcome
        reason = f"{type(fault).__name__}: {one_line(fault)}"
        return PathResult(float("nan"), time.perf_counter() - start, 0, reason)
    return PathResult(error, time.perf_counter() - start, graphs)


def _by_export(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, int]:
    import relaxc

    return relaxc.compile(module, inputs, threads=1)(*inputs), 1


def _by_dynamo(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, int]:
    from relaxc.torch_compile import backend, compiled_graphs

    torch._dynamo.reset()
    before = len(compiled_graphs())
    options = {"strict": True, "threads": 1}
    result = torch.compile(module, backend=backend, options=options)(*inputs)
    return result, len(compiled_graphs()) - before
