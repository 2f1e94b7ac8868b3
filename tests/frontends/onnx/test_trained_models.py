"""Trained models that ship inside PyPI packages: shapes fold at import, numbers agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.utils import Extractor
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
    ("ddddocr", "common.onnx", {}, [("(image_width - 1) // 8 + 1", 1, 8210)]),
    ("ddddocr", "common_old.onnx", {}, [("(image_width - 1) // 8 + 1", 1, 8210)]),
    ("ddddocr", "common_det.onnx", {}, [(1, 3549, 6)]),
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


def _page(batch: int, height: int, width: int) -> np.ndarray:
    """Return an image of rows of dark strokes on a light ground, as the text models expect it."""
    rng = np.random.default_rng(width)
    image = np.ones((batch, 1, height, width))
    for top in range(8, height - 24, 32):
        for left in range(6, width - 14, 12):
            strokes = np.kron(rng.random((batch, 6, 2)) < 0.5, np.ones((1, 4, 4)))
            image[:, 0, top : top + 24, left : left + 8] = 1 - 2 * strokes
    for axis in (2, 3):
        image = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / 4
    return np.repeat(image, 3, 1).astype("float32")


def _part(path: Path, given: dict[str, list[int | str]], result: str) -> onnx.ModelProto:
    """Return what computes `result` from the tensors given; a whole model takes minutes."""
    model = onnx.load(path)
    known = {value.name for value in model.graph.input}
    float32 = onnx.TensorProto.FLOAT
    for name, shape in {**given, result: None}.items():
        if name not in known:
            model.graph.value_info.append(helper.make_tensor_value_info(name, float32, shape))
    return Extractor(model).extract_model(list(given), [result])


def _assert_agrees(
    model: Path | onnx.ModelProto, shapes: dict[str, Any] | None, feeds: list[dict[str, np.ndarray]]
) -> None:
    """Compile once, and compare each input with ONNX Runtime: error over the largest result."""
    compiled = relaxc.compile(model, threads=2, progress=False, dynamic_shapes=shapes)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    for feed in feeds:
        found = compiled(**feed)
        found = found if isinstance(found, (tuple, list)) else [found]
        for got, want in zip(found, session.run(None, feed), strict=True):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()


RAPIDOCR = "rapidocr_onnxruntime"


def test_text_direction_over_a_symbolic_batch() -> None:
    _assert_agrees(
        _find(RAPIDOCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        {"x": ("batch", 3, 48, 192)},
        [{"x": _page(batch, 48, 192)} for batch in (1, 2, 3)],
    )


def test_first_layers_of_the_text_detector_over_symbolic_sizes() -> None:
    _assert_agrees(
        _part(
            _find(RAPIDOCR, "ch_PP-OCRv4_det_infer.onnx"),
            {"x": ["batch", 3, "h", "w"]},
            "p2o.Add.27",
        ),
        None,
        [{"x": _page(1, *size)} for size in ((64, 96), (96, 160), (160, 128), (33, 50))],
    )


def test_attention_of_the_text_recognizer_over_a_symbolic_width() -> None:
    """Attention over the columns, whose number is the width of the image."""
    features = "p2o.AveragePool.1"
    _assert_agrees(
        _part(
            _find(RAPIDOCR, "ch_PP-OCRv4_rec_infer.onnx"),
            {features: ["batch", 480, 1, "w"]},
            "p2o.Add.241",
        ),
        None,
        [{features: 5 * _noise(b, 480, 1, w, seed=w)} for b, w in ((1, 12), (2, 20), (1, 40))],
    )


def test_voice_detector_of_two_sampling_rates() -> None:
    """An If on the rate, known at run time only, around Ifs on the sizes."""
    _assert_agrees(
        _find("silero_vad", "silero_vad.onnx"),
        None,
        [
            {
                "input": _noise(batch, window, seed=batch),
                "state": _noise(2, batch, 128),
                "sr": np.array(rate),
            }
            for batch, window, rate in ((1, 576, 16000), (2, 576, 16000), (3, 288, 8000))
        ],
    )


def test_voice_detector_over_a_symbolic_number_of_windows() -> None:
    """Its LSTM walks the windows as a sequence of symbolic length."""
    _assert_agrees(
        _find("silero_vad", "silero_vad_16k_sequence.onnx"),
        {"input": {0: "windows"}},
        [
            {"input": _noise(n, 576, seed=n), "h": _noise(1, 1, 128), "c": _noise(1, 1, 128)}
            for n in (1, 7)
        ],
    )


def test_voice_detector_of_one_window() -> None:
    _assert_agrees(
        _find("silero_vad", "silero_vad_openvino_16k.onnx"),
        None,
        [{"input": _noise(1, 576), "state": _noise(2, 1, 128)}],
    )


def test_voice_detector_with_branches_on_its_shapes() -> None:
    """Conditions on the window's length are decided at import; the batch stays symbolic."""
    _assert_agrees(
        _find("silero_vad", "silero_vad_half.onnx"),
        {"input": ("batch", 576), "state": {1: "batch"}},
        [{"input": _noise(b, 576, seed=b), "state": _noise(2, b, 128)} for b in (1, 3)],
    )


def test_file_type_detector_over_a_symbolic_batch() -> None:
    data = np.random.default_rng(0).integers(0, 257, (3, 2048)).astype("int32")
    _assert_agrees(
        _find("magika", "model.onnx"),
        {"bytes": {0: "batch"}},
        [{"bytes": data[:1]}, {"bytes": data}],
    )


def test_captcha_recognizer_over_a_symbolic_width() -> None:
    """A convolutional network and an LSTM over its columns, whose number follows from the width."""
    rng = np.random.default_rng(0)
    _assert_agrees(
        _find("ddddocr", "common.onnx"),
        None,
        [{"input1": rng.random((1, 1, 64, w)).astype("float32")} for w in (97, 128, 200)],
    )
