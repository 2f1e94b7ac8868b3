"""Mutate models and watch the importer: `python -m tests.fuzz [--count 2000] [--seed 0]`.

Case `i` of a run is the same file whenever it is made with the same seed. Each runs in a process of
its own, with a limit of time and of memory. A model must either compile or be refused with a
`RelaxcError`; anything else is printed, and its file is kept in the folder `--keep`. With `--cases`
ONNX's own node cases are mutated, every operator in all its variants, instead of the seed models.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

from tests.conformance.cases import load_cases
from tests.fuzz.mutate import mutate
from tests.fuzz.run_case import GOOD, run_case
from tests.fuzz.seed_models import SEEDS, write_external_data

Seeds = Mapping[str, Callable[[], onnx.ModelProto]]


def make_case(seed: str, number: int, seeds: Seeds = SEEDS) -> tuple[str, bytes, bool]:
    """Return the seed model's name, the mutated bytes, and whether the case is compiled too."""
    source = random.Random(f"{seed}/{number}")
    name = sorted(seeds)[number % len(seeds)]
    return name, mutate(seeds[name]().SerializeToString(), source), source.random() < 0.15


def node_cases() -> Seeds:
    """Return ONNX's node cases in an order that has nothing of their names in it."""
    models = [case.source.model for case in load_cases(suites=("node",))]
    random.Random(0).shuffle(models)

    def again(model: onnx.ModelProto) -> Callable[[], onnx.ModelProto]:
        return lambda: model

    return {f"{place:04d}-{model.graph.name}": again(model) for place, model in enumerate(models)}


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; return 1 if one ended badly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many mutated files")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", default="0", help="another seed makes other files")
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit of a case")
    parser.add_argument("--megabytes", type=int, default=2048, help="memory limit of a case")
    parser.add_argument("--keep", default="fuzz-failures", help="folder for files that fail")
    parser.add_argument("--cases", action="store_true", help="mutate ONNX's node cases")
    options = parser.parse_args(arguments)

    # Once, before the processes are forked: what is imported lazily too.
    import relax_passes.build  # noqa: F401
    import relax_passes.pipeline  # noqa: F401
    from frontends.onnx import import_onnx

    import_onnx(SEEDS["convolutions"]())
    seeds, chosen = (node_cases(), " --cases") if options.cases else (SEEDS, "")
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        write_external_data(Path(folder))
        for number in range(options.first, options.first + options.count):
            name, data, compiling = make_case(options.seed, number, seeds)
            path = Path(folder) / "model.onnx"
            path.write_bytes(data)
            outcome = run_case(
                path,
                compiling=compiling,
                seconds=options.seconds,
                megabytes=options.megabytes,
            )
            ends[outcome.word] += 1
            if outcome.word not in GOOD:
                kept = Path(options.keep) / f"{options.seed}-{number}-{name}.onnx"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data)
                again = f"--seed {options.seed} --first {number} --count 1{chosen}"
                print(f"{outcome.word}: {again}: {kept}")
                print("    " + outcome.detail.strip().replace("\n", "\n    "), flush=True)
    print(", ".join(f"{word} {count}" for word, count in sorted(ends.items())))
    return 0 if set(ends) <= set(GOOD) else 1


if __name__ == "__main__":
    sys.exit(main())
