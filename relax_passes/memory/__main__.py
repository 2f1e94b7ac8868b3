"""Plan the buffers of a CSV file: `python -m relax_passes.memory file.csv [--capacity N]`."""

from __future__ import annotations

import argparse
import sys

from relax_passes.memory.buffer_file import read_buffers
from relax_passes.memory.plan_offsets import STRATEGIES, plan_offsets


def main(argv: list[str] | None = None) -> int:
    """Print peak, lower bound and their ratio; return 1 if the plan exceeds `--capacity`."""
    parser = argparse.ArgumentParser(prog="python -m relax_passes.memory", description=__doc__)
    parser.add_argument("file", help="columns id,lower,upper,size; upper is exclusive")
    parser.add_argument("--strategy", choices=STRATEGIES, default="search")
    parser.add_argument("--alignment", type=int, default=1, help="bytes (default 1)")
    parser.add_argument("--capacity", type=int, help="exit with 1 if the peak is larger")
    args = parser.parse_args(argv)
    try:
        plan = plan_offsets(
            read_buffers(args.file),
            strategy=args.strategy,
            alignment=args.alignment,
            capacity=args.capacity,
        )
    except (OSError, ValueError) as error:
        print(f"error: {args.file}: {error}", file=sys.stderr)
        return 2
    print(f"peak {plan.peak}  bound {plan.lower_bound}  ratio {plan.ratio:.3f}")
    return int(args.capacity is not None and plan.peak > args.capacity)


if __name__ == "__main__":
    sys.exit(main())
