"""Repeated calls ask the system for no memory: its allocator is counted, not addresses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import relaxc

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")


def chain() -> onnx.ModelProto:
    """Products of n rows and 64 columns, softmax between them: every tensor has 16 KiB and more."""
    weight = numpy_helper.from_array(np.full((64, 64), 0.01, "float32"), "w")
    nodes, value = [], "x"
    for k in range(4):
        nodes.append(helper.make_node("MatMul", [value, "w"], [f"p{k}"]))
        nodes.append(helper.make_node("Softmax", [f"p{k}"], [f"s{k}"], axis=0))
        value = f"s{k}"
    nodes.append(helper.make_node("MatMul", [value, "w"], ["y"]))
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "chain", [tensor("x", 1, ["n", 64])], [tensor("y", 1, ["n", 64])], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that counts."""
    if COMPILER is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and LD_PRELOAD")
    built = tmp_path_factory.mktemp("counter") / "count_allocations.so"
    source = HERE / "count_allocations.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.mark.parametrize("dim", ["n", "n<=128"])
def test_repeated_calls_allocate_nothing(dim: str, counter: Path, tmp_path: Path) -> None:
    """The output is dropped before the next call, so its memory is handed out again too."""
    model = relaxc.compile(chain(), threads=1, progress=False, dynamic_shapes={"x": {0: dim}})
    path = model.save(tmp_path / "model.so")
    found = subprocess.run(
        [sys.executable, "-m", "tests.relaxc.count_allocations", str(path)],
        env={**os.environ, "LD_PRELOAD": str(counter)},
        capture_output=True,
        text=True,
        check=True,
    )
    counts = json.loads(found.stdout.splitlines()[-1])
    assert counts["repeated"] == 0
    assert counts["first"] > 0 and counts["new"] >= (dim == "n")
