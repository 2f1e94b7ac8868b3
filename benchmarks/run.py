"""relaxc beside its peers: one command, interleaved runs, medians, accuracy in the same run.

    python -m benchmarks.run --models resnet50,bert_base --threads 1,2

Each model and thread count is measured in a process of its own, with all engines in it: a crash
costs one row, thread pools have one size, and the runs of the engines alternate. The table and
everything behind it go to `benchmarks/results/<date>-<cpu>.{md,json}`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import zoo
from benchmarks.core_share import claim_cores
from benchmarks.markdown_table import render_markdown
from relaxc.processor_name import processor_name

RESULTS = Path(__file__).parent / "results"
PEERS = ("onnxruntime", "openvino", "inductor", "tvm")
TOLERANCE = 1e-4  # max abs error / max abs reference
PACKAGES = ("apache-tvm", "numpy", "onnx", "onnxruntime", "openvino", "torch", "transformers")
WORKER_SECONDS = 3600  # TVM's default pipeline alone takes minutes on a transformer


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the files; exit with 1 if a result is wrong."""
    options = _parse(arguments)
    if options.worker is not None:
        _worker(options)
        return
    rows = []
    for name in options.models:
        for threads in options.threads:
            print(f"{name}, {threads} thread(s) …", file=sys.stderr, flush=True)
            rows.append(_measure_in_worker(name, threads, options))
    document = {**describe_machine(), "rows": rows}
    text = render_markdown(document)
    print(text)
    stem = (
        f"{document['date'][:10]}-{re.sub(r'[^a-z0-9]+', '-', document['cpu'].lower()).strip('-')}"
    )
    _write(options.output, stem, text, document)
    wrong = [row["model"] for row in rows if not row["accurate"]]
    if wrong:
        sys.exit(f"wrong results or no run: {', '.join(dict.fromkeys(wrong))}")


def describe_machine() -> dict[str, Any]:
    """Return date, processor and package versions."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    def names(known: Sequence[str]) -> Any:
        def parse(text: str) -> list[str]:
            named = [name for name in text.split(",") if name]
            chosen = [one for name in named for one in zoo.GROUPS.get(name, (name,))]
            for name in chosen:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
            return chosen

        return parse

    def counts(text: str) -> list[int]:
        return [int(count) for count in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--models", type=names(zoo.names()), default=list(zoo.names()),
        help=f"names of the zoo, or a group of them: {', '.join(zoo.GROUPS)}",
    )  # fmt: skip
    parser.add_argument("--threads", type=counts, default=[1, 2])
    parser.add_argument("--peers", type=names(PEERS), default=["onnxruntime", "openvino"])
    parser.add_argument("--repeats", type=int, default=30, help="rounds of interleaved runs")
    parser.add_argument("--budget", type=float, default=60, help="seconds of runs per row")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _measure_in_worker(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one row in a process of its own; a row that dies says how."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "row.json"
        command = [
            *(sys.executable, "-m", "benchmarks.run", "--worker", name),
            *("--threads", str(threads), "--answer", str(answer)),
            *("--peers", ",".join(options.peers), "--repeats", str(options.repeats)),
            *("--budget", str(options.budget)),
        ]
        # A pool is as large as its variable says when it starts; passive OpenMP threads sleep
        # between runs instead of spinning into the next engine's turn.
        environment = {
            **os.environ,
            "TVM_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        try:
            done = subprocess.run(
                command, env=environment, timeout=WORKER_SECONDS, stderr=subprocess.PIPE, text=True
            )
        except subprocess.TimeoutExpired:
            return _failed(name, threads, f"no result within {WORKER_SECONDS} s")
        if not answer.exists():
            last = (done.stderr.strip().splitlines() or [""])[-1]
            return _failed(name, threads, f"exit code {done.returncode}: {last}")
        return json.loads(answer.read_text())


def _failed(name: str, threads: int, reason: str) -> dict[str, Any]:
    return {"model": name, "threads": threads, "accurate": False, "failure": reason, "engines": {}}


def _worker(options: argparse.Namespace) -> None:
    """Measure one model at one thread count and write the row as JSON."""
    claim_cores()
    name, threads = options.worker, options.threads[0]
    path = zoo.onnx_path(name)

    from benchmarks.example_feeds import example_feeds
    from relaxc.bench import measure_side_by_side
    from relaxc.peers import PEERS as PEER_CLASSES
    from relaxc.peers import InductorPeer, Peer, RelaxcPeer

    ours = RelaxcPeer()
    peers: list[Peer] = [ours]
    for peer in options.peers:
        if peer != "inductor":
            peers.append(PEER_CLASSES[peer]())
        elif name in zoo.BUILT:
            peers.append(InductorPeer(zoo.torch_model(name)[0]))
    results = measure_side_by_side(
        peers,
        path,
        example_feeds(name, path),
        threads=threads,
        rounds=options.repeats,
        budget_seconds=options.budget,
    )
    error = next(r.relative_error for r in results if r.name == "relaxc")
    row: dict[str, Any] = {
        "model": name,
        "threads": threads,
        "accurate": error is not None and error <= TOLERANCE,
        "failure": next((r.skipped for r in results if r.name == "relaxc"), ""),
        "engines": {
            r.name: {
                "median_ms": None if r.seconds is None else r.seconds * 1e3,
                "min_ms": min(r.samples) * 1e3 if r.samples else None,
                "runs": len(r.samples),
                "prepare_s": r.prepare_seconds,
                "relative_error": r.relative_error,
                "skipped": r.skipped,
            }
            for r in results
        },
    }
    if ours.model is not None:
        row["compile"] = _describe_compilation(ours.model.report, path, threads)
    options.answer.write_text(json.dumps(row))


def _describe_compilation(report: Any, path: Path, threads: int) -> dict[str, Any]:
    """Return where the compile time goes, the kernels, and the arena beside TVM's planner."""
    from benchmarks.tvm_planner import tvm_planner_bytes

    try:
        planner: int | None = tvm_planner_bytes(path, threads)
    except (RuntimeError, ValueError, TypeError):  # the planner refuses symbolic sizes
        planner = None
    return {
        "seconds": report.seconds,
        "phase_seconds": report.phase_seconds,
        "kernels": len(report.kernels),
        "layout_transforms": report.layout_transforms,
        "flops": report.flops,
        "arena_naive": report.naive_bytes,
        "arena_tvm": planner,
        "arena": report.arena_bytes,
        "arena_bound": report.lower_bound_bytes,
    }


def _write(folder: Path, stem: str, text: str, document: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.md").write_text(text + "\n")
    (folder / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
