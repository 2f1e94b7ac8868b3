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

    The first peer that runs and is not relaxc is the reference for the relative error; with none,
    no error is reported. Each round runs every peer once; rounds stop early when `budget_seconds`
    are spent, but each peer is timed at least three times.

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
    reference = next((peer.name for peer in running if peer.name != "relaxc"), None)
    for peer in running:
        if reference is not None:
            names = [str(i) for i in range(len(outputs[reference]))]
            errors = compare_outputs(outputs[peer.name], outputs[reference], names)
            results[peer.name].relative_error = max((e.relative for e in errors), default=0.0)
    start = time.perf_counter()
    for index in range(rounds):
        if index >= 3 and time.perf_counter() - start > budget_seconds:
            break
        for peer in running:
            begin = time.perf_counter()
            peer.run(inputs)
            results[peer.name].samples.append(time.perf_counter() - begin)
    for peer in running:
        results[peer.name].seconds = statistics.median(results[peer.name].samples)
    return list(results.values())
