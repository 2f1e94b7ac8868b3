"""Run onnx's own node cases through the importer and TVM's default build.

    python tests/conformance/run_node_cases.py [--filter test_conv] [--workers 2] [--every 10]

Each case runs in a worker process with a time-out, since a wrong graph may crash the process.
Prints one line for each case that does not pass, and a count of pass / wrong / error / unsupported.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import multiprocessing
import re
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

Outcome = tuple[str, str]  # ("pass" | "wrong" | "error" | "unsupported" | "skipped", detail)


def load_cases(pattern: str) -> list[Any]:
    """Return onnx's node cases whose name matches the regular expression."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return [case for case in cases if re.search(pattern, case.name)]


def run_case(case: Any) -> Outcome:
    """Import, compile and run one case against its recorded outputs."""
    import tvm
    from tvm import relax

    from frontends.errors import RelaxcError, UnsupportedOperator
    from frontends.onnx import import_onnx

    model, pairs = _read(case)
    try:
        try:
            imported = import_onnx(model)
        except UnsupportedOperator as error:
            if "needs a constant" not in str(error):
                return "unsupported", str(error)
            # Cases pass axes, depths, ... as inputs, where real models have initializers.
            imported = import_onnx(_with_initializers(model, pairs[0][0]))
    except UnsupportedOperator as error:
        return "unsupported", str(error)
    except RelaxcError as error:
        return "error", f"import: {error}"
    executable = tvm.compile(imported.module, target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    for inputs, outputs in pairs:
        names = [value.name for value in model.graph.input]
        given = dict(zip(names, inputs, strict=False))
        wanted = [given[spec.name] for spec in imported.inputs]
        results = machine["main"](*(tvm.runtime.tensor(np.asarray(a, order="C")) for a in wanted))
        if len(outputs) == 1:
            results = [results]
        for got, expected in zip(results, outputs, strict=True):
            problem = _difference(got.numpy(), expected, case)
            if problem:
                return "wrong", problem
    return "pass", ""


def _with_initializers(model: Any, inputs: list[np.ndarray]) -> Any:
    """Return the model with its small inputs after the first as initializers."""
    import onnx
    from onnx import numpy_helper

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value, array in list(zip(model.graph.input, inputs, strict=False))[1:]:
        if array is not None and np.asarray(array).ndim <= 1:
            copy.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
    return copy


def _read(case: Any) -> tuple[Any, list[tuple[list[np.ndarray], list[np.ndarray]]]]:
    import glob
    import os

    import onnx
    from onnx import numpy_helper

    if case.model is not None:
        return case.model, [(_arrays(i), _arrays(o)) for i, o in case.data_sets]
    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    pairs = []
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
        sides = []
        for side in ("input", "output"):
            count = len(glob.glob(os.path.join(folder, f"{side}_*.pb")))
            sides.append(
                [
                    numpy_helper.to_array(
                        onnx.load_tensor(os.path.join(folder, f"{side}_{number}.pb"))
                    )
                    for number in range(count)
                ]
            )
        pairs.append((sides[0], sides[1]))
    return model, pairs


def _arrays(items: Any) -> list[Any]:
    """Return a case's data as arrays; types that NumPy lacks are given as TensorProto."""
    import onnx
    from onnx import numpy_helper

    return [
        numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
        for item in items
    ]


def _difference(got: np.ndarray, expected: Any, case: Any) -> str:
    expected = np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {got.shape}, not {expected.shape}"
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, not {expected.dtype}"
    if "bernoulli" in case.name or "random" in case.name:
        return ""
    wide = (np.float64,) if got.dtype.kind not in "iub" else ()
    left, right = (side.astype(*wide) if wide else side for side in (got, expected))
    if not np.allclose(left, right, rtol=case.rtol, atol=case.atol, equal_nan=True):
        with np.errstate(all="ignore"):
            error = np.nanmax(np.abs(left.astype("float64") - right.astype("float64")))
        return f"max abs error {error}"
    return ""


def _serve(pipe: Connection, pattern: str) -> None:
    """Run cases by name until the pipe closes."""
    faulthandler.enable()
    cases = {case.name: case for case in load_cases(pattern)}
    pipe.send("ready")
    while (name := pipe.recv()) is not None:
        try:
            pipe.send(run_case(cases[name]))
        except Exception as error:  # noqa: BLE001 - any failure is this case's outcome
            text = str(error).strip().splitlines() or [""]
            pipe.send(("error", f"{type(error).__name__}: {text[-1][:300]}"))


class _Worker:
    """One process that runs cases, replaced when it hangs or dies."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, self._pattern), daemon=True)
        self._process.start()
        far.close()
        self._pipe.recv()

    def run(self, name: str, seconds: float) -> Outcome:
        self._pipe.send(name)
        try:
            if self._pipe.poll(seconds):
                return self._pipe.recv()
            outcome: Outcome = ("error", f"no answer in {seconds:g} s")
        except (EOFError, ConnectionResetError):
            outcome = ("error", "the process died")
        self._process.kill()
        self._start()
        return outcome

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(5)


def run_cases(names: list[str], pattern: str, workers: int, seconds: float) -> dict[str, Outcome]:
    """Run cases in `workers` processes, printing those that fail; return all outcomes."""
    from concurrent.futures import ThreadPoolExecutor

    outcomes: dict[str, Outcome] = {}

    def work(share: list[str]) -> None:
        worker = _Worker(pattern)
        for name in share:
            verdict, detail = outcomes[name] = worker.run(name, seconds)
            if verdict != "pass":
                print(f"{verdict:12} {name}: {detail}", flush=True)
        worker.stop()

    shares = [share for number in range(workers) if (share := names[number::workers])]
    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(work, shares))
    return outcomes


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="regular expression on the case's name")
    parser.add_argument("--every", type=int, default=1, help="run each n-th case only")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="time-out of one case")
    options = parser.parse_args()
    names = [case.name for case in load_cases(options.filter)][:: options.every]
    outcomes = run_cases(names, options.filter, options.workers, options.seconds)
    counts = collections.Counter(verdict for verdict, _ in outcomes.values())
    print(", ".join(f"{counts[v]} {v}" for v in ("pass", "wrong", "error", "unsupported")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
