"""NumPy inputs for a zoo model, made from its ONNX file: no PyTorch is needed to measure one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SEED = 7

# Sizes of the trained files' symbolic dimensions: what their own packages feed them.
_TRAINED_SHAPES = {
    "ppocr_det": (1, 3, 640, 640),
    "ppocr_rec": (1, 3, 48, 320),
    "ppocr_cls": (1, 3, 48, 192),
    "magika": (1, 2048),
}


def example_feeds(name: str, path: Path) -> dict[str, np.ndarray]:
    """Return one array per input of the model at `path`.

    Floats are standard normal. Masks are ones, segment ids zeros, and other integers are below
    256, which is a valid token or byte everywhere.
    """
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    generator = np.random.default_rng(SEED)
    feeds: dict[str, np.ndarray] = {}
    for value in graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = _TRAINED_SHAPES.get(name) or tuple(d.dim_value for d in tensor.shape.dim)
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = generator.standard_normal(shape).astype(dtype)
        elif "mask" in value.name:
            feeds[value.name] = np.ones(shape, dtype)
        elif "type" in value.name:
            feeds[value.name] = np.zeros(shape, dtype)
        else:
            feeds[value.name] = generator.integers(0, 256, shape).astype(dtype)
    return feeds
