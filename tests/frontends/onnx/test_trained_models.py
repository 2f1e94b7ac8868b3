"""Trained models that ship inside PyPI packages: shapes fold at import, numbers agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tvm import relax

import relaxc
from frontends.onnx import import_onnx

CASES = [
    ("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {}, [("x_dim0", 2)]),
    (
        "rapidocr_onnxruntime",
        "ch_PP-OCRv4_det_infer.onnx",
        {"x": ("batch", 3, "h", "w")},
        [("batch", 1, "(h - 1) // 32 * 32 + 32", "(w - 1) // 32 * 32 + 32")],
    ),
    (
        "rapidocr_onnxruntime",
        "ch_PP-OCRv4_det_infer.onnx",
        {"x": (1, 3, 64, 96)},
        [(1, 1, 64, 96)],
    ),
    (
        "rapidocr_onnxruntime",
        "ch_PP-OCRv4_rec_infer.onnx",
        {"x": ("batch", 3, 48, "w")},
        [("batch", "(w - 5) // 8 + 1", 6625)],
    ),
    ("magika", "model.onnx", {"bytes": {0: "batch"}}, [("batch", 214)]),
]


def _find(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return next(iter(sorted(Path(spec.origin).parent.rglob(name))))


@pytest.mark.parametrize(("package", "name", "shapes", "outputs"), CASES)
def test_shapes_follow_from_the_inputs(
    package: str, name: str, shapes: dict[str, Any], outputs: list[tuple]
) -> None:
    imported = import_onnx(_find(package, name), dynamic_shapes=shapes)
    assert [spec.shape for spec in imported.outputs] == outputs
    relax.analysis.well_formed(imported.module)
    names = {
        binding.value.op.name
        for block in imported.module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    }
    # Nothing reads a shape at run time.
    assert not names & {"relax.call_pure_packed", "relax.tensor_to_shape", "relax.shape_of"}


def _noise(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype("float32")


def _assert_agrees(
    package: str, name: str, shapes: dict[str, Any] | None, feeds: list[dict[str, np.ndarray]]
) -> None:
    """Compile once, and compare each input with ONNX Runtime: error over the largest result."""
    path = _find(package, name)
    compiled = relaxc.compile(path, threads=2, progress=False, dynamic_shapes=shapes)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for feed in feeds:
        found = compiled(**feed)
        found = found if isinstance(found, (tuple, list)) else [found]
        for got, want in zip(found, session.run(None, feed), strict=True):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()


def test_voice_detector_over_a_symbolic_number_of_windows() -> None:
    """Its LSTM walks the windows as a sequence of symbolic length."""
    _assert_agrees(
        "silero_vad",
        "silero_vad_16k_sequence.onnx",
        {"input": {0: "windows"}},
        [
            {"input": _noise(n, 576, seed=n), "h": _noise(1, 1, 128), "c": _noise(1, 1, 128)}
            for n in (1, 7)
        ],
    )


def test_voice_detector_of_one_window() -> None:
    _assert_agrees(
        "silero_vad",
        "silero_vad_openvino_16k.onnx",
        None,
        [{"input": _noise(1, 576), "state": _noise(2, 1, 128)}],
    )


def test_voice_detector_with_branches_on_its_shapes() -> None:
    """Conditions on the window's length are decided at import; the batch stays symbolic."""
    _assert_agrees(
        "silero_vad",
        "silero_vad_half.onnx",
        {"input": ("batch", 576), "state": {1: "batch"}},
        [{"input": _noise(b, 576, seed=b), "state": _noise(2, b, 128)} for b in (1, 3)],
    )


def test_file_type_detector_over_a_symbolic_batch() -> None:
    data = np.random.default_rng(0).integers(0, 257, (3, 2048)).astype("int32")
    _assert_agrees(
        "magika",
        "model.onnx",
        {"bytes": {0: "batch"}},
        [{"bytes": data[:1]}, {"bytes": data}],
    )
