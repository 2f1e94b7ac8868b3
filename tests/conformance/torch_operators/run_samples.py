"""Run the samples of one operator: those of all dtypes together, many in each compiled module."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.conformance.compare import one_line
from tests.conformance.run_case import Outcome
from tests.conformance.torch_operators.core_set import op_infos

# Samples compiled into one module, because an export costs as much as ten kernels. A module that
# fails is halved until the samples at fault are alone.
BATCH = 40
MOST = 20  # samples of one operator and dtype, evenly spaced among those that torch ships
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_NARROW = (torch.float16, torch.bfloat16)
_RANDOM = {"rand_like", "randn", "randn_like", "nn.functional.dropout", "empty", "empty_strided"}
_TIED = {"mode", "sort", "topk"}  # torch leaves open which of equal elements is named


@dataclass(frozen=True)
class Job:
    """Samples of one OpInfo.

    Attributes:
        key: The operator.
        dtypes: In which dtypes.
        most: How many samples of each dtype.
        engine: A name of `engines.ENGINES`.
        only: One sample, "dtype/number", instead of all.
    """

    key: str
    dtypes: tuple[str, ...]
    most: int = MOST
    engine: str = "relaxc"
    only: str = ""

    def alone(self) -> list[Job]:
        """Return one job for each sample."""
        return [replace(self, only=sample.name) for sample in _samples(self)]


@dataclass(frozen=True)
class Sample:
    """A call whose tensors are inputs and whose other arguments are fixed."""

    name: str
    function: Callable[..., list[Any]]
    tensors: list[torch.Tensor]
    expected: list[torch.Tensor]
    is_random: bool = False


def run_samples(job: Job) -> dict[str, Outcome]:
    """Return the outcome of each sample by its name; samples that eager refuses are left out."""
    from tests.conformance.torch_operators.engines import ENGINES

    warnings.simplefilter("ignore")
    gc.freeze()  # what torch and TVM hold stays anyway; walking it takes a tenth of the time
    samples = list(_samples(job))
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        for sample, result in zip(batch, _results(ENGINES[job.engine], batch), strict=True):
            outcomes[sample.name] = _judge(sample, result, job.key)
    return outcomes


def _samples(job: Job) -> Iterator[Sample]:
    for dtype in job.dtypes:
        wanted, _, number = job.only.partition("/")
        if wanted in ("", dtype):
            yield from _samples_of(job, dtype, int(number) if number else None)


def _samples_of(job: Job, dtype: str, only: int | None) -> Iterator[Sample]:
    info = op_infos()[job.key]
    torch.manual_seed(0)
    given = list(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False))
    for number in spaced(len(given), job.most):
        if only in (None, number):
            sample = _sample(f"{dtype}/{number}", info.op, given[number])
            if sample is not None:
                yield sample


def spaced(count: int, most: int) -> list[int]:
    """Return at most `most` numbers below `count`, evenly spaced."""
    return list(range(count)) if count <= most else [i * count // most for i in range(most)]


def _sample(name: str, op: Callable[..., Any], given: Any) -> Sample | None:
    leaves, tree = pytree.tree_flatten(((given.input, *given.args), given.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]

    def function(*inputs: torch.Tensor) -> list[Any]:
        full = list(leaves)
        for place, tensor in zip(places, inputs, strict=True):
            full[place] = tensor
        args, kwargs = pytree.tree_unflatten(full, tree)
        return [_real(result) for result in pytree.tree_leaves(op(*args, **kwargs))]

    try:
        expected = function(*[tensor.clone() for tensor in tensors])
    except Exception:  # noqa: BLE001 - a sample that torch itself refuses proves nothing
        return None
    if not expected or not all(isinstance(e, torch.Tensor | int | float | bool) for e in expected):
        return None
    results = [e for e in expected if isinstance(e, torch.Tensor)]
    return Sample(name, function, tensors, results, bool(given.kwargs.get("dropout_p")))


def _real(result: Any) -> Any:
    """Return complex numbers as pairs of real ones."""
    is_complex = isinstance(result, torch.Tensor) and result.is_complex()
    return torch.view_as_real(result.resolve_conj()) if is_complex else result


def _results(
    engine: Callable[[Sequence[Sample]], list[list[torch.Tensor]]], samples: Sequence[Sample]
) -> list[list[torch.Tensor] | Outcome]:
    """Return the results of each sample, or what became of it."""
    try:
        return list(engine(samples))
    except Exception as fault:  # noqa: BLE001 - whatever is raised is the outcome of one of them
        if len(samples) == 1:
            return [_fault(fault)]
    middle = len(samples) // 2
    return _results(engine, samples[:middle]) + _results(engine, samples[middle:])


def _fault(fault: Exception) -> Outcome:
    from relaxc.errors import UnsupportedOperator

    refused = isinstance(fault, UnsupportedOperator) or "Unsupported function type" in str(fault)
    if refused:
        return Outcome("unsupported", one_line(fault))
    return Outcome("error", f"{type(fault).__name__}: {one_line(fault)}")


def _judge(sample: Sample, result: Any, key: str) -> Outcome:
    if isinstance(result, Outcome):
        return result
    if len(sample.expected) != len(result):
        return Outcome("wrong", f"{len(result)} outputs, not {len(sample.expected)}")
    for place, (want, have) in enumerate(zip(sample.expected, result, strict=True)):
        problem = _difference(want, have, key not in _RANDOM and not sample.is_random)
        if problem and key in _TIED and place == 1 and orders(sample.tensors[0], *result):
            problem = ""
        if problem and want.dtype in _NARROW and is_as_exact(sample, place, have):
            problem = ""
        if problem:
            return Outcome("wrong", f"output {place}: {problem}")
    return Outcome("pass")


def orders(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> bool:
    """Tell whether indices name the values, each element once, along some axis, kept or not."""
    is_dropped = values.ndim < x.ndim
    for axis in range(x.ndim):
        named, places = (t.unsqueeze(axis) if is_dropped else t for t in (values, indices))
        others = [x.shape[a] == named.shape[a] for a in range(x.ndim) if a != axis]
        if all(others) and (places < x.shape[axis]).all():
            once = bool((places.sort(axis)[0].diff(dim=axis) > 0).all())
            if once and not _difference(named, torch.gather(x, axis, places), True):
                return True
    return False


def is_as_exact(sample: Sample, place: int, have: torch.Tensor) -> bool:
    """Tell whether a result in half precision is as near to that in float64 as eager's is."""
    want = sample.expected[place]
    given = [t.double() if t.dtype in _NARROW else t for t in sample.tensors]
    try:
        exact = [r for r in sample.function(*given) if isinstance(r, torch.Tensor)][place]
    except RuntimeError:  # some argument fixes the dtype
        return False
    if (exact.dtype, exact.shape) != (torch.float64, have.shape) or have.dtype != want.dtype:
        return False
    ours, theirs = ((result.double() - exact).abs().max() for result in (have, want))
    return bool(ours <= theirs)


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
