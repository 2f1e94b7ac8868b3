"""Measure engines side by side: interleaved runs, medians, accuracy in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relaxc.check import compare_outputs
from relaxc.peers import Peer

# Worker threads of an engine spin for a while after a run and slow down whoever follows: with two
# cores, a 6 ms run right after ONNX Runtime's took up to 49 ms. A turn starts with runs that are
# not timed, for this long (seconds); beside a run of half a second the spinning does not show.
_SETTLE_SECONDS = 0.05
_SPIN_MATTERS_BELOW = 0.5


@dataclass
class Measurement:
    """One engine's result: median seconds, its relative error, or why it did not run."""

    name: str
    seconds: float | None = None
    prepare_seconds: float | None = None
    relative_error: float | None = None
    skipped: str = ""
    samples: list[float] = field(default_factory=list)


def measure_side_by_side(
    peers: Sequence[Peer],
    model_path: str | Path,
    inputs: Mapping[str, np.ndarray],
    *,
    threads: int,
    rounds: int = 20,
    budget_seconds: float = 20.0,
) -> list[Measurement]:
    """Time the peers in turns, so that a noisy moment hits all of them alike.

    ONNX Runtime, or else the first peer that is not relaxc, is the reference for the relative
    error; with none, no error is reported. A turn is some runs that are not timed, which outlast
    the spinning threads of the engine before, and one that is. A peer takes part in every round
    until it has used its share of `budget_seconds`, and in one at least.

    Returns:
        One `Measurement` per peer, in order; one that cannot run says why in `skipped`.
    """
    results = {peer.name: Measurement(peer.name) for peer in peers}
    outputs: dict[str, list[np.ndarray]] = {}
    for peer in peers:
        start = time.perf_counter()
        try:
            peer.prepare(model_path, threads)
            outputs[peer.name] = [np.array(value) for value in peer.run(inputs)]
        except Exception as fault:  # an engine that fails is a result of the comparison
            lines = str(fault).strip().splitlines() or [repr(fault)]
            results[peer.name].skipped = f"{type(fault).__name__}: {lines[0]}"
        else:
            results[peer.name].prepare_seconds = time.perf_counter() - start
    running = [peer for peer in peers if peer.name in outputs]
    names = [peer.name for peer in running if peer.name != "relaxc"]
    reference = "onnxruntime" if "onnxruntime" in names else next(iter(names), None)
    for peer in running:
        if reference is not None:
            labels = [str(i) for i in range(len(outputs[reference]))]
            errors = compare_outputs(outputs[peer.name], outputs[reference], labels)
            results[peer.name].relative_error = max((e.relative for e in errors), default=0.0)
    share = budget_seconds / max(len(running), 1)
    spent = dict.fromkeys(outputs, 0.0)
    for _ in range(rounds):
        for peer in running:
            result = results[peer.name]
            if result.samples and spent[peer.name] > share:
                continue
            start = time.perf_counter()
            settles = not result.samples or result.samples[-1] < _SPIN_MATTERS_BELOW
            while settles and time.perf_counter() - start < _SETTLE_SECONDS:
                peer.run(inputs)
            begin = time.perf_counter()
            peer.run(inputs)
            end = time.perf_counter()
            result.samples.append(end - begin)
            spent[peer.name] += end - start
    for peer in running:
        results[peer.name].seconds = statistics.median(results[peer.name].samples)
    return list(results.values())
