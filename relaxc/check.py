"""Compare a compiled model with ONNX Runtime on seeded random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relaxc.compiled_model import CompiledModel
from relaxc.errors import InvalidInput
from relaxc.random_inputs import random_inputs

TOLERANCE = 1e-4  # max abs error / max abs reference, float32


@dataclass(frozen=True)
class OutputError:
    """How far one output is from the reference.

    `relative` is the largest absolute error over the largest absolute reference value; it is
    infinite where shapes, dtypes, or the places of NaN and infinity differ.
    """

    name: str
    relative: float
    note: str = ""

    def within(self, tolerance: float) -> bool:
        """Tell whether the error is at most `tolerance`."""
        return self.relative <= tolerance


def relative_error(actual: np.ndarray, expected: np.ndarray, name: str = "") -> OutputError:
    """Measure `actual` against `expected`."""
    if actual.shape != expected.shape:
        return OutputError(name, np.inf, f"shape {actual.shape}, expected {expected.shape}")
    if actual.dtype != expected.dtype:
        return OutputError(name, np.inf, f"dtype {actual.dtype}, expected {expected.dtype}")
    if expected.size == 0:
        return OutputError(name, 0.0)
    if "float" not in str(expected.dtype):  # bfloat16 is no floating type to NumPy
        wrong = int(np.count_nonzero(actual != expected))
        return OutputError(
            name, np.inf if wrong else 0.0, f"{wrong} values differ" if wrong else ""
        )
    ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return OutputError(name, np.inf, "NaN or infinity in other places")
    if not np.isfinite(ours[finite]).all():
        return OutputError(name, np.inf, "NaN or infinity where the reference is finite")
    if not finite.any():
        return OutputError(name, 0.0, "all values NaN or infinite")
    scale = float(np.abs(theirs[finite]).max())
    error = float(np.abs(ours[finite] - theirs[finite]).max())
    return OutputError(name, error / scale if scale else error)


def check_against_onnxruntime(
    model: CompiledModel,
    path: str | Path,
    *,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
) -> list[OutputError]:
    """Run `model` and ONNX Runtime on the same inputs; return one error per output.

    Raises:
        InvalidInput: If onnxruntime is not installed or cannot run the model.
    """
    from relaxc.peers import OnnxRuntimePeer

    feeds = random_inputs(model.inputs, seed=seed, dims=dims)
    peer = OnnxRuntimePeer()
    try:
        peer.prepare(path, model.threads)
        expected = peer.run(feeds)
    except ImportError as fault:
        raise InvalidInput("the check needs onnxruntime: pip install onnxruntime") from fault
    except Exception as fault:  # onnxruntime's exceptions have no common base class
        lines = str(fault).strip().splitlines() or [repr(fault)]
        raise InvalidInput(f"onnxruntime cannot run it: {lines[0]}", file=str(path)) from fault
    actual = as_tuple(model(**feeds))
    return compare_outputs(actual, expected, [spec.name for spec in model.outputs])


def compare_outputs(
    actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], names: Sequence[str]
) -> list[OutputError]:
    """Return one `OutputError` per output.

    Raises:
        InvalidInput: If the numbers of outputs differ.
    """
    if len(actual) != len(expected):
        raise InvalidInput(f"{len(actual)} outputs, the reference has {len(expected)}")
    return [relative_error(a, e, n) for a, e, n in zip(actual, expected, names, strict=True)]


def as_tuple(result: object) -> tuple[np.ndarray, ...]:
    """Return a model's result as a tuple, whatever the number of outputs."""
    return result if isinstance(result, tuple) else (np.asarray(result),)
