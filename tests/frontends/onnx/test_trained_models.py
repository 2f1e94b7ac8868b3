"""Trained models that ship inside PyPI packages import, their shape arithmetic all folded."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tvm import relax

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
