"""Side-by-side measurement: who runs, who is the reference, who is skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.reference
import pytest

from relaxc.bench import measure_side_by_side
from relaxc.peers import (
    Feeds,
    InductorPeer,
    OnnxRuntimePeer,
    OpenVinoPeer,
    Peer,
    TvmDefaultPeer,
    flatten_tensors,
)
from tests.relaxc.small_models import affine_relu

X = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype("float32")}


class FakePeer:
    """Counts its runs and returns a multiple of the input."""

    def __init__(self, name: str, factor: float = 1.0, fault: Exception | None = None) -> None:
        self.name, self.factor, self.fault, self.log = name, factor, fault, []  # type: ignore[var-annotated]

    def prepare(self, model_path: str | Path, threads: int) -> None:
        self.log.append(f"prepare {threads}")
        if self.fault is not None:
            raise self.fault

    def run(self, inputs: Feeds) -> list[np.ndarray]:
        self.log.append("run")
        return [inputs["x"] * np.float32(self.factor)]


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    onnx.save(affine_relu(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_errors_are_against_onnxruntime_and_faults_become_reasons() -> None:
    peers = [
        FakePeer("relaxc", 1.5),
        FakePeer("other", 2.0),
        FakePeer("onnxruntime", 1.0),
        FakePeer("absent", fault=ImportError("no module absent\nmore")),
    ]
    ours, other, ort, absent = measure_side_by_side(peers, "m", X, threads=2, rounds=4)
    assert [r.relative_error for r in (ours, other, ort)] == pytest.approx([0.5, 1.0, 0.0])
    assert [len(r.samples) for r in (ours, other, ort, absent)] == [4, 4, 4, 0]
    assert absent.seconds is None and absent.skipped == "ImportError: no module absent"
    assert ours.seconds is not None and min(ours.samples) <= ours.seconds <= max(ours.samples)
    assert peers[0].log[0] == "prepare 2"


def test_every_peer_is_timed_once_whatever_the_budget() -> None:
    results = measure_side_by_side(
        [FakePeer("relaxc"), FakePeer("slow")], "m", X, threads=1, rounds=9, budget_seconds=0
    )
    assert [len(r.samples) for r in results] == [1, 1]


def test_a_turn_outlasts_the_spinning_threads_of_the_one_before() -> None:
    """Several runs of a quick engine go untimed before each that is timed."""
    quick = FakePeer("relaxc")
    (result,) = measure_side_by_side([quick], "m", X, threads=1, rounds=2)
    assert len(result.samples) == 2
    assert quick.log.count("run") > 1 + 2 * len(result.samples)


def test_relaxc_alone_has_no_reference() -> None:
    (ours,) = measure_side_by_side([FakePeer("relaxc")], "m", X, threads=1, rounds=1)
    assert ours.relative_error is None and ours.seconds is not None


@pytest.mark.parametrize("peer", [OnnxRuntimePeer(), OpenVinoPeer(), TvmDefaultPeer()])
def test_peers_agree_with_the_reference_evaluator(peer: Peer, model_path: Path) -> None:
    pytest.importorskip(peer.name)
    peer.prepare(model_path, 1)
    expected = onnx.reference.ReferenceEvaluator(affine_relu()).run(None, X)
    for _ in range(2):
        (result,) = peer.run(X)
        np.testing.assert_allclose(result, expected[0], rtol=1e-5, atol=1e-6)


def test_inductor_needs_a_module() -> None:
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="PyTorch modules"):
        InductorPeer().prepare("model.onnx", 1)


def test_flatten_tensors() -> None:
    assert flatten_tensors({"a": 1, "b": (2, [3, None])}) == [1, 2, 3]
