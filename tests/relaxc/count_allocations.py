"""Run in a process of its own, `count_allocations.c` preloaded: what repeated calls allocate.

Prints as JSON how many large allocations the first call made, how many twenty calls of the same
sizes made after two of each, and how many a call of a new size made.
"""

from __future__ import annotations

import ctypes
import json
import sys

import numpy as np
import tvm

import relaxc


def main(path: str) -> None:
    """Load the model at `path`, which takes one input (n, 64), and count."""
    model = relaxc.load(path)
    large_allocations = ctypes.CDLL(None).large_allocations
    large_allocations.restype = ctypes.c_long
    given = {n: tvm.runtime.tensor(np.ones((n, 64), "float32")) for n in (64, 96, 100)}

    def cost(*sizes: int) -> int:
        before = large_allocations()
        for n in sizes:
            model(given[n])
        return int(large_allocations() - before)

    first = cost(64)
    cost(96, 64, 96)
    print(json.dumps({"first": first, "repeated": cost(*[64, 96] * 10), "new": cost(100)}))


if __name__ == "__main__":
    main(sys.argv[1])
