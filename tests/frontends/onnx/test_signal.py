"""Fourier transforms, windows, mel filters and n-gram counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxc
from frontends.errors import RelaxcError
from frontends.onnx import import_onnx
from tests.frontends.onnx.many_nodes import check_variants, model_of, variant

RNG = np.random.default_rng(13)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _scalar(number: int) -> np.ndarray:
    return np.array(number, "int64")


FEEDS = {
    "real": _floats(2, 12, 5, 1),
    "pair": _floats(2, 12, 5, 2),
    "one": _scalar(1),
    "second": _scalar(-2),
    "longer": _scalar(15),
    "shorter": _scalar(7),
}
NODES = [
    variant("DFT", "real - one"),
    variant("DFT", "real longer one", onesided=1),
    variant("DFT", "real shorter second", onesided=1),
    variant("DFT", "pair - one", inverse=1),
    variant("DFT", "pair longer second", inverse=1),
    variant("DFT", "pair shorter one"),
    variant("DFT", "pair - one", inverse=1, onesided=1),
    variant("DFT", "pair longer one", inverse=1, onesided=1),
]


@pytest.mark.parametrize("known", [True, False])
def test_dft(known: bool) -> None:
    """Axis and length are known, or both read at run time."""
    constants = ["one", "second", "longer", "shorter"] if known else []
    check_variants(NODES, FEEDS, by="reference", constants=constants, opset=20, tolerance=1e-4)


def test_dft_with_attribute_and_symbolic_sizes() -> None:
    nodes = [variant("DFT", "real", onesided=1), variant("DFT", "pair longer", axis=2)]
    feeds = {name: FEEDS[name] for name in ("real", "pair", "longer")}
    symbolic = {"real": ["n", "t", 5, 1], "pair": ["n", 12, "t2", 2]}
    check_variants(
        nodes, feeds, by="reference", constants=["longer"], opset=17, symbolic=symbolic,
        tolerance=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1024, 1000, 521 * 2])
def test_long_transforms(length: int) -> None:
    """Powers of two, small factors, and a big prime factor."""
    x = _floats(3, length, 2).astype("float64")
    model = model_of([variant("DFT", "x", axis=1)], {"x": x}, opset=17)
    got = np.asarray(relaxc.compile(model, threads=1, progress=False)(x=x))
    want = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, rtol=1e-9, atol=1e-9)


def test_stft() -> None:
    feeds = {
        "x": _floats(2, 50, 1),
        "step": _scalar(7),
        "window": RNG.random(16).astype("float32"),
        "length": _scalar(16),
    }
    nodes = [
        variant("STFT", "x step window length"),
        variant("STFT", "x step window", onesided=0),
        variant("STFT", "x step - length"),
    ]
    check_variants(nodes, feeds, constants=["step", "length"], opset=17, tolerance=1e-4)
    check_variants(nodes[:1], feeds | {"x": _floats(2, 43, 1)}, opset=17, tolerance=1e-4)


def test_windows_and_mel_filters_of_run_time_size() -> None:
    feeds = {
        "size": _scalar(10),
        "bands": _scalar(5),
        "length": _scalar(64),
        "rate": _scalar(8000),
        "low": np.array(0.0, "float32"),
        "high": np.array(4000.0, "float32"),
    }
    nodes = [
        variant(op, "size", periodic=periodic)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for periodic in (0, 1)
    ]
    nodes.append(variant("MelWeightMatrix", "bands length rate low high"))
    check_variants(nodes, feeds, by="reference", opset=17)


def test_n_gram_counts() -> None:
    grams: dict[str, Any] = {
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
    }
    feeds = {
        "x": np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], "int32"),
        "flat": np.array([1, 3, 5, 6, 8, 7, 8, 6, 7], "int64"),
    }
    nodes = [
        variant(
            "TfIdfVectorizer", name, mode=mode, min_gram_length=least, max_gram_length=2,
            max_skip_count=skips, weights=[1.0, 2.0, 0.5, 3.0, 1.5, 2.5, 4.0], **grams,
        )
        for name, mode, least, skips in [
            ("x", "TF", 1, 0), ("x", "IDF", 2, 2), ("x", "TFIDF", 1, 3), ("flat", "TFIDF", 2, 1),
        ]
    ]  # fmt: skip
    check_variants(nodes, feeds, opset=9)


@pytest.mark.parametrize(
    ("op", "count", "outputs"),
    [("StringConcat", 2, 1), ("RegexFullMatch", 1, 1), ("StringSplit", 1, 2)],
)
def test_strings_are_refused(op: str, count: int, outputs: int) -> None:
    names = [f"y{place}" for place in range(outputs)]
    text = helper.make_tensor_value_info("s", TensorProto.STRING, [1])
    graph = helper.make_graph(
        [helper.make_node(op, ["s"] * count, names)],
        "test",
        [text],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(RelaxcError, match="strings are no tensors"):
        import_onnx(model)
