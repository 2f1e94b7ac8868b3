"""Weights stay in the file: mapped when a model is loaded, never copied, each there once."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from relaxc.artifact import FOOTER, read_metadata
from relaxc.errors import IncompatibleArtifact
from tests.frontends.onnx.run_model import run_reference
from tests.relaxc.test_buckets import dense

RNG = np.random.default_rng(0)
WEIGHTS = {
    name: RNG.uniform(-0.1, 0.1, (64, 64)).astype("float32") for name in ("first", "other", "body")
}
X = RNG.standard_normal((3, 64)).astype("float32")


def branching() -> onnx.ModelProto:
    """Return a product, then one of two in a branch, then as many as a loop runs.

    One branch reads the weight that `main` reads.
    """
    tensor, node = helper.make_tensor_value_info, helper.make_node
    square = [3, 64]
    branches = {
        f"{kind}_branch": helper.make_graph(
            [node("MatMul", ["a", weight], [kind])], kind, [], [tensor(kind, 1, square)]
        )
        for kind, weight in (("then", "other"), ("else", "first"))
    }
    body = helper.make_graph(
        [
            node("MatMul", ["s", "body"], ["t"]),
            node("Add", ["t", "s"], ["next"]),
            node("Identity", ["go"], ["still"]),
        ],
        "loop",
        [tensor("i", TensorProto.INT64, []), tensor("go", TensorProto.BOOL, []),
         tensor("s", 1, square)],
        [tensor("still", TensorProto.BOOL, []), tensor("next", 1, square)],
    )  # fmt: skip
    nodes = [
        node("MatMul", ["x", "first"], ["a"]),
        node("If", ["flag"], ["b"], **branches),
        node("Loop", ["rounds", "", "b"], ["y"], body=body),
    ]
    main = helper.make_graph(
        nodes,
        "main",
        [tensor("flag", TensorProto.BOOL, []), tensor("rounds", TensorProto.INT64, []),
         tensor("x", 1, square)],
        [tensor("y", 1, square)],
        [numpy_helper.from_array(weight, name) for name, weight in WEIGHTS.items()],
    )  # fmt: skip
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = relaxc.compile(branching(), threads=1)
    return model.save(tmp_path_factory.mktemp("weights") / "model.so")


def _region(path: Path) -> tuple[int, int]:
    """Return where the weights of a file begin and end."""
    end = FOOTER.unpack(path.read_bytes()[-FOOTER.size :])[0]
    return end - read_metadata(path).weights.nbytes, end


def test_weights_of_branches_and_loops_are_handed_on(saved: Path) -> None:
    model = relaxc.load(saved)
    for flag in (True, False):
        for rounds in (0, 1, 3):
            feeds = {"flag": np.array(flag), "rounds": np.array(rounds), "x": X}
            (expected,) = run_reference(branching(), feeds)
            np.testing.assert_allclose(model(**feeds), expected, rtol=1e-4, atol=1e-5)


def test_each_weight_lies_in_the_file_once_and_nowhere_else(saved: Path) -> None:
    table, data = read_metadata(saved).weights, saved.read_bytes()
    assert sum(weight.nbytes for weight in table.weights) == 3 * 64 * 64 * 4
    assert table.takes == {"main": (0, 1, 2)}
    start, end = _region(saved)
    assert start % 64 == 0 and all(weight.offset % 64 == 0 for weight in table.weights)
    for weight in WEIGHTS.values():
        rare = np.sort(weight.reshape(-1).view("uint32"))[-1].tobytes()
        assert data.count(rare, start, end) == 1
        assert data.count(rare, 0, start) == 0, "the executable holds it, too"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_byte_is_copied_when_a_model_is_loaded(saved: Path) -> None:
    model = relaxc.load(saved)
    model(np.array(True), np.array(1), X)
    mapped = [
        tuple(int(place, 16) for place in line.split()[0].split("-"))
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(saved))
    ]
    for tensor in model._weights:
        assert any(low <= tensor.data_ptr() < high for low, high in mapped)
        assert tensor.data_ptr() % 64 == 0
    assert relaxc.load(saved)._weights is model._weights, "models of one file share them"


def test_buckets_share_weights(tmp_path: Path) -> None:
    model = relaxc.compile(dense(), threads=1, dynamic_shapes={"x": {1: [16, 4]}})
    table = read_metadata(model.save(tmp_path / "model.so")).weights
    assert len(table.weights) == 1
    assert len(table.takes) == 3 and set(table.takes.values()) == {(0,)}


def test_object_files_come_with_their_weights(saved: Path, tmp_path: Path) -> None:
    archive = relaxc.compile(branching(), threads=1).save(tmp_path / "model.tar")
    linked = relaxc.link(archive, tmp_path / "linked.so")
    feeds = (np.array(True), np.array(2), X)
    np.testing.assert_array_equal(relaxc.load(linked)(*feeds), relaxc.load(saved)(*feeds))


def _altered(archive: Path, copy: Path, change: Callable[[bytes], bytes | None]) -> Path:
    """Write an archive anew with other weights, or without."""
    with tarfile.open(archive) as old, tarfile.open(copy, "w") as new:
        for member in old.getmembers():
            data: bytes | None = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == "weights.bin":
                data = change(data or b"")
            if data is not None:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
    return copy


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "damaged"),
        (lambda data: data[:5000], "damaged"),
        (lambda data: data + bytes(64), "damaged"),
        (lambda data: None, "no weights"),
    ],
)
def test_object_files_with_damaged_weights_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes | None], reason: str
) -> None:
    archive = relaxc.compile(dense(), threads=1).save(tmp_path / "model.tar")
    with pytest.raises(IncompatibleArtifact, match=reason):
        relaxc.link(_altered(archive, tmp_path / "bad.tar", change), tmp_path / "linked.so")
    assert not (tmp_path / "linked.so").exists()


def test_a_file_cut_within_its_weights_is_refused(saved: Path, tmp_path: Path) -> None:
    start, end = _region(saved)
    cut = tmp_path / "cut.so"
    cut.write_bytes(saved.read_bytes()[: (start + end) // 2])
    with pytest.raises(IncompatibleArtifact, match="cut short"):
        relaxc.load(cut)


_CHILD = """
import re, sys
import numpy as np, tvm, relaxc, relaxc.artifact, relaxc.compiled_model

def status(field):
    return int(re.search(rf"^{field}:\\s+(\\d+) kB", open("/proc/self/status").read(), re.M)[1])

before = status("VmRSS")
model = relaxc.load(sys.argv[1])
y = model(np.ones((1, 2048), "float32"))
print((status("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_is_that_of_one_copy(tmp_path: Path) -> None:
    weight = np.ones((2048, 4096), "float32")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
        [info("x", TensorProto.FLOAT, [1, 2048])], [info("y", TensorProto.FLOAT, [1, 4096])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = relaxc.compile(model, threads=1).save(tmp_path / "model.so")
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True
    )
    peak = int(ran.stdout.split()[-1])
    assert weight.nbytes < peak < 1.3 * weight.nbytes
