"""Pack random buffers with a planted plan: `python -m tests.fuzz.pack_buffers [--count 500]`.

Each instance is a rectangle cut into 50-500 pieces, so its capacity is known to suffice. A plan
that overlaps, or that needs more than 1.02 times the capacity, is printed, and makes the exit code
1. The search stops after some 2 s; it counts nodes, so what it finds is the same everywhere.

With `--stated` the capacity is stated, as to `relax_passes.memory --capacity`, and must be met: the
search may take up to a minute, and some of these instances are not packed yet (docs/memory.md).
"""

from __future__ import annotations

import argparse
import sys

from relax_passes.memory.plan_offsets import plan_offsets
from relax_passes.memory.verify_offsets import OverlapError, verify_offsets
from tests.relax_passes.memory.planted import GRID, hard_tiling, random_tiling

MOST = 1.02  # times the planted capacity


def fault(seed: int, stated: bool = False) -> str | None:
    """Pack instance `seed`; say what is wrong with the plan, None if nothing is."""
    buffers, capacity = (hard_tiling(seed), GRID) if stated else random_tiling(seed)
    plan = plan_offsets(buffers, alignment=1, capacity=capacity if stated else None)
    try:
        verify_offsets(buffers, plan.offsets, plan.peak, alignment=1)
    except OverlapError as overlap:
        return str(overlap)
    if plan.peak > (1 if stated else MOST) * capacity:
        return f"{len(buffers)} buffers: {plan.peak / capacity:.4f} times the capacity"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Pack the instances; return 1 if a plan is wrong or loose."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.pack_buffers", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many instances")
    parser.add_argument("--first", type=int, default=0, help="number of the first instance")
    parser.add_argument("--stated", action="store_true", help="hard ones, of stated capacity")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.count)
    faults = {
        number: found for number in numbers if (found := fault(number, options.stated)) is not None
    }
    for number, found in faults.items():
        print(f"--first {number} --count 1: {found}")
    print(f"{options.count} instances, {len(faults)} wrong or loose")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
