"""What became of each graph: compiled, taken from the cache, or left to eager with a reason."""

from __future__ import annotations

import collections
import logging
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger("relaxc.torch_compile")


@dataclass(frozen=True)
class GraphRecord:
    """One captured graph.

    Attributes:
        name: "graph_0", "graph_1", … in the order of capture.
        outcome: "compiled", "cached" or "eager".
        reason: Why it was left to eager.
        operators: How many ATen operators it has.
        model: The `CompiledModel`, None for eager.
    """

    name: str
    outcome: str
    reason: str
    operators: int
    model: Any = None


RECORDS: collections.deque[GraphRecord] = collections.deque(maxlen=1_000)


def record(entry: GraphRecord) -> None:
    """Keep a record and log it: a fall back to eager as a warning, the rest as information."""
    RECORDS.append(entry)
    if entry.outcome == "eager":
        LOG.warning(
            "relaxc leaves %s (%d operators) to eager: %s",
            entry.name,
            entry.operators,
            entry.reason,
        )
    else:
        LOG.info("relaxc %s %s (%d operators)", entry.outcome, entry.name, entry.operators)


def clear() -> None:
    """Forget all records."""
    RECORDS.clear()
