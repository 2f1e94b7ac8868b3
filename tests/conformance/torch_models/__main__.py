"""Run the architectures: `python -m tests.conformance.torch_models [--filter REGEX]`.

Exit code 1 if one of them does not give eager's numbers by both paths.
"""

from __future__ import annotations

import argparse
import re
import sys

from rich.console import Console
from rich.markup import escape

from tests.conformance.torch_models.architectures import ARCHITECTURES
from tests.conformance.torch_models.run_model import run_model
from tests.worker_pool import Died, WorkerPool


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run each model in a worker process, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filter", default="", help="regular expression on the name")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0, help="time-out of one model")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    names = [name for name in ARCHITECTURES if re.search(options.filter, name)]
    passed = {"export": 0, "torch.compile": 0}
    with WorkerPool(run_model, options.workers, most_jobs=8) as pool:
        for name, results in pool.run_all(names, lambda name: options.seconds):
            if isinstance(results, Died):
                console.print(f"{name:18}{results.reason}")
                continue
            for path, result in results.items():
                passed[path] += result.passes
                shown = result.reason or f"error {result.error:.1e}, {result.graphs} graph(s)"
                line = f"{name:18}{path:15}{result.seconds:6.1f} s  {shown}"
                console.print(escape(line), soft_wrap=True)
    for path, count in passed.items():
        console.print(f"{path}: {count} of {len(names)}")
    return 0 if all(count == len(names) for count in passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
