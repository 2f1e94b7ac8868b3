"""Run the samples of one operator in one dtype, several in each compiled module."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.conformance.compare import one_line
from tests.conformance.run_case import Outcome
from tests.conformance.torch_operators.core_set import op_infos

BATCH = 8  # samples compiled into one module; where it fails, its samples run one by one
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_RANDOM = {"rand_like", "randn", "randn_like", "nn.functional.dropout", "empty", "empty_strided"}


@dataclass(frozen=True)
class Job:
    """All samples of one OpInfo in one dtype, or every n-th one."""

    key: str
    dtype: str
    every: int = 1
    most: int = 1_000

    @property
    def name(self) -> str:
        """Return the operator and the dtype as one word."""
        return f"{self.key}/{self.dtype}"


@dataclass(frozen=True)
class Sample:
    """A call whose tensors are inputs and whose other arguments are fixed."""

    number: int
    function: Callable[..., list[Any]]
    tensors: list[torch.Tensor]
    expected: list[Any]


def run_samples(job: Job) -> dict[int, Outcome]:
    """Return the outcome of each sample by its number; samples that eager refuses are left out."""
    warnings.simplefilter("ignore")
    samples = list(_samples(job))
    outcomes: dict[int, Outcome] = {}
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        try:
            results = _run(batch)
        except Exception:  # noqa: BLE001 - one of them is at fault
            results = [_run_alone(sample) for sample in batch]
        for sample, result in zip(batch, results, strict=True):
            compare_numbers = job.key not in _RANDOM
            outcomes[sample.number] = _judge(sample, result, compare_numbers)
    return outcomes


def _samples(job: Job) -> Any:
    info = op_infos()[job.key]
    torch.manual_seed(0)
    given = list(info.sample_inputs("cpu", getattr(torch, job.dtype), requires_grad=False))
    chosen = list(enumerate(given))[:: job.every][: job.most]
    for number, sample in chosen:
        call = (sample.input, *sample.args), sample.kwargs
        leaves, tree = pytree.tree_flatten(call)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in places]

        def function(
            *inputs: torch.Tensor, leaves: Any = leaves, tree: Any = tree, places: Any = places
        ) -> list[Any]:
            full = list(leaves)
            for place, tensor in zip(places, inputs, strict=True):
                full[place] = tensor
            args, kwargs = pytree.tree_unflatten(full, tree)
            return pytree.tree_leaves(info.op(*args, **kwargs))

        try:
            expected = function(*[tensor.clone() for tensor in tensors])
        except Exception:  # noqa: BLE001 - a sample that torch itself refuses proves nothing
            continue
        if expected and all(isinstance(e, torch.Tensor | int | float | bool) for e in expected):
            yield Sample(number, function, tensors, expected)


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


def _run(samples: Sequence[Sample]) -> list[list[Any]]:
    """Compile the samples together and return the results of each."""
    import relaxc

    inputs = tuple(tensor for sample in samples for tensor in sample.tensors)
    with torch.no_grad():
        program = torch.export.export(_Together(samples), inputs)
    model = relaxc.compile(program, threads=1)
    flat = model(*inputs)
    flat = list(flat) if isinstance(flat, tuple) else [flat]
    results = [torch.as_tensor(r) for r in flat]
    parts = []
    for sample in samples:
        count = sum(isinstance(e, torch.Tensor) for e in sample.expected)
        parts.append(results[:count])
        results = results[count:]
    return parts


def _run_alone(sample: Sample) -> list[Any] | Outcome:
    from relaxc.errors import UnsupportedOperator

    try:
        return _run([sample])[0]
    except UnsupportedOperator as fault:
        return Outcome("unsupported", one_line(fault))
    except Exception as fault:  # noqa: BLE001 - whatever is raised is this sample's outcome
        return Outcome("error", f"{type(fault).__name__}: {one_line(fault)}")


def _judge(sample: Sample, result: Any, compare_numbers: bool) -> Outcome:
    if isinstance(result, Outcome):
        return result
    wanted = [e for e in sample.expected if isinstance(e, torch.Tensor)]
    if len(wanted) != len(result):
        return Outcome("wrong", f"{len(result)} outputs, not {len(wanted)}")
    for place, (want, have) in enumerate(zip(wanted, result, strict=True)):
        problem = _difference(want, have, compare_numbers)
        if problem:
            return Outcome("wrong", f"output {place}: {problem}")
    return Outcome("pass")


def _difference(want: torch.Tensor, have: torch.Tensor, compare_numbers: bool) -> str:
    if (want.dtype, want.shape) != (have.dtype, have.shape):
        return f"{have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
    if not compare_numbers:
        return ""
    tolerance = _TOLERANCE.get(want.dtype, 0.0)
    finite = want[want.isfinite()] if want.is_floating_point() else want
    scale = float(finite.abs().max()) if tolerance and finite.numel() else 0.0
    try:
        torch.testing.assert_close(
            have, want, rtol=tolerance, atol=tolerance * scale * 0.1, equal_nan=True
        )
    except AssertionError as fault:
        return one_line(fault)
    return ""
