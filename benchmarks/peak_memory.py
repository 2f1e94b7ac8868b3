"""Peak resident memory of a model that is loaded and run: relaxc against ONNX Runtime.

`python -m benchmarks.peak_memory bert_base gpt2 [--threads 2]` compiles and saves each model, then
loads and runs it in a process of its own, as ONNX Runtime does with the ONNX file. What counts is
the peak over what the process had resident once its packages were imported.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import zoo
from benchmarks.example_feeds import example_feeds

_RUNS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row a model, in MB."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="model", help="names of the zoo")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(_peak(*options.child, options.threads))
        return
    print("| model | file MB | relaxc MB | ORT MB | ratio |\n| --- | --- | --- | --- | --- |")
    for name in options.models:
        print(_row(name, options.threads), flush=True)


def _row(name: str, threads: int) -> str:
    import relaxc

    path = zoo.onnx_path(name)
    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder) / "feeds.npz"
        np.savez(feeds, **example_feeds(name, path))
        saved = relaxc.compile(path, threads=threads).save(Path(folder) / "model.so")
        ours, theirs = (_in_process(feeds, file, threads) for file in (saved, path))
    size = path.stat().st_size / 1e6
    return f"| {name} | {size:.0f} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |"


def _in_process(feeds: Path, file: Path, threads: int) -> float:
    command = [sys.executable, "-m", "benchmarks.peak_memory", "--threads", str(threads)]
    command += ["--child", str(feeds), str(file)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def _peak(feeds_file: Path, file: Path, threads: int) -> float:
    """Return by how many MB loading and running a file raises this process's peak."""
    import onnxruntime  # noqa: F401 - imports are not what is measured
    import tvm  # noqa: F401

    import relaxc.artifact
    from relaxc.peers import OnnxRuntimePeer, RelaxcPeer

    feeds = dict(np.load(feeds_file))
    before = _status("VmRSS")
    if file.suffix == ".so":
        peer = RelaxcPeer(relaxc.load(file))
    else:
        peer = OnnxRuntimePeer()
        peer.prepare(file, threads)
    for _ in range(_RUNS):
        peer.run(feeds)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    """Return a field of this process's status in MB."""
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.M)
    if found is None:
        raise RuntimeError(f"the system tells no {field}")
    return int(found[1]) * 1024 / 1e6


if __name__ == "__main__":
    main()
