"""`make demo`: compile a trained model, check it, and race it against two other engines.

The model finds the text lines in a picture: PP-OCRv4's detector, 672 ONNX nodes, trained weights,
as it ships in the PyPI package `rapidocr-onnxruntime`. Another model: `python tutorials/demo.py
model.onnx`.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

import relaxc
from relaxc.bench import measure_side_by_side
from relaxc.check import TOLERANCE, as_tuple, compare_outputs
from relaxc.peers import OnnxRuntimePeer, RelaxcPeer, TvmDefaultPeer
from relaxc.random_inputs import random_inputs

SIZE = 320  # pixels; the model takes any, and a fixed one lets every layer be laid out in blocks


def shipped_model() -> Path:
    """Return the path of the detector inside its installed package, which is not imported."""
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the demo's model is in the package rapidocr-onnxruntime: run `make demo`")
    return Path(spec.submodule_search_locations[0]) / "models" / "ch_PP-OCRv4_det_infer.onnx"


def page_of_text(seed: int = 0) -> np.ndarray:
    """Return a picture of three lines of text as the model takes it, shape (1, 3, SIZE, SIZE).

    Dark letters on light paper with a scanner's noise, mapped to [-1, 1] as PP-OCR does.
    """
    paper = np.full((SIZE, SIZE), 235.0)
    for line, scale in enumerate((5, 4, 5)):
        for column, letter in enumerate("RELAXC"):
            rows = [[pixel == "#" for pixel in row] for row in _LETTERS[letter].split()]
            ink = np.kron(np.array(rows), np.ones((scale, scale))).astype(bool)
            top, left = 40 + 90 * line, 40 + 6 * scale * column
            paper[top : top + ink.shape[0], left : left + ink.shape[1]][ink] = 30.0
    picture = (paper / 255 - 0.5) / 0.5
    noise = np.random.default_rng(seed).normal(0, 0.04, (1, 3, SIZE, SIZE))
    return (picture + noise).astype("float32")


_LETTERS = {
    "R": "####. #...# #...# ####. #.#.. #..#. #...#",
    "E": "##### #.... #.... ####. #.... #.... #####",
    "L": "#.... #.... #.... #.... #.... #.... #####",
    "A": ".###. #...# #...# ##### #...# #...# #...#",
    "X": "#...# .#.#. ..#.. ..#.. ..#.. .#.#. #...#",
    "C": ".#### #.... #.... #.... #.... #.... .####",
}


def main() -> None:
    """Run the demo."""
    given = len(sys.argv) > 1
    path = Path(sys.argv[1]) if given else shipped_model()
    shapes = None if given else {"x": {0: 1, 2: SIZE, 3: SIZE}}
    print(f"1. compile {path.name}")
    model = relaxc.compile(path, dynamic_shapes=shapes)
    print(model.report)

    print("\n2. save it as one file, load it back, run it")
    with tempfile.TemporaryDirectory() as folder:
        library = model.save(Path(folder) / "model.so")
        print(f"   {library.stat().st_size / 1e6:.1f} MB: code and weights")
        inputs = random_inputs(model.inputs) if given else {"x": page_of_text()}
        first, second = model(**inputs), relaxc.load(library)(**inputs)
        assert np.array_equal(first, second), "a loaded model must give the same bits"

    print("\n3. compare with ONNX Runtime")
    peer = OnnxRuntimePeer()
    peer.prepare(path, model.threads)
    expected = peer.run(inputs)
    # On an input without text all values are 1e-6, and a relative error says nothing.
    if not given and not expected[0].max() > 0.5:
        sys.exit("ONNX Runtime finds no text on the page")
    errors = compare_outputs(
        as_tuple(model(**inputs)), expected, [spec.name for spec in model.outputs]
    )
    for error in errors:
        print(f"   {error.name}: max error / max value {error.relative:.1e} {error.note}")

    print("\n4. measure, interleaved, the same inputs and threads")
    peers = (RelaxcPeer(model), OnnxRuntimePeer(), TvmDefaultPeer())
    results = measure_side_by_side(
        peers, path, inputs, threads=model.threads, rounds=30, budget_seconds=30
    )
    ours = results[0].seconds
    for result in results:
        if result.seconds is None or ours is None:
            print(f"   {result.name:<12} did not run: {result.skipped}")
        else:
            ratio = result.seconds / ours
            print(
                f"   {result.name:<12} {1e3 * result.seconds:9.2f} ms   {ratio:6.2f}x relaxc's time"
            )
    if not all(error.within(TOLERANCE) for error in errors):
        sys.exit("the outputs differ from ONNX Runtime's")


if __name__ == "__main__":
    main()
