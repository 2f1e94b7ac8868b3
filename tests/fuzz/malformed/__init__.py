"""A corpus of malformed models: each is wrong in one way, and says what the error must name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.fuzz.malformed import names, nodes, subgraphs, tensors, versions
from tests.fuzz.malformed.case import CASES, Malformed

FAMILIES = (names, versions, nodes, tensors, subgraphs)


def corpus() -> Iterator[tuple[str, Callable[[], Malformed]]]:
    """Yield name and maker of every case, family by family."""
    for family in FAMILIES:
        yield from ((n, make) for n, make in CASES.items() if make.__module__ == family.__name__)
