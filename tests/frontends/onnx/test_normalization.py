"""Normalizations: training, narrow data with wide parameters (O8), further outputs (O12)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import relaxc
from frontends.onnx.importer import import_onnx
from relax_passes.fold_batch_norm import fold_batch_norm
from tests.frontends.onnx.many_nodes import check_variants, variant
from tests.frontends.onnx.run_model import make_model, run_reference
from tests.relax_passes.pass_checks import context, operators

RNG = np.random.default_rng(15)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


BATCH = {
    "x": _floats(3, 4, 5, 2), "scale": _floats(4), "bias": _floats(4), "mean": _floats(4),
    "var": RNG.random(4).astype("float32") + 0.5,
}  # fmt: skip


def test_batch_norm_in_training() -> None:
    """The running statistics move; the batch's own normalize."""
    nodes = [
        variant("BatchNormalization", "x scale bias mean var", 3, training_mode=1, momentum=0.7),
        variant("BatchNormalization", "x scale bias mean var", 1, epsilon=1e-2),
    ]
    check_variants(nodes, BATCH, by="reference", opset=15, tolerance=1e-4)


def test_batch_norm_of_half_data_with_single_parameters() -> None:
    feeds = BATCH | {"x": BATCH["x"].astype("float16")}
    nodes = [
        variant("BatchNormalization", "x scale bias mean var", training_mode=1),
        variant("BatchNormalization", "x scale bias mean var"),
    ]
    check_variants(nodes, feeds, by="reference", opset=15, tolerance=3e-3)


def test_batch_norm_after_a_convolution_folds_into_it() -> None:
    """Constant parameters stay operands: bound to names, they made the pass decline."""
    weights = {"w": _floats(4, 3, 1, 1), **{k: BATCH[k] for k in ("scale", "bias", "mean", "var")}}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv_out"]),
        helper.make_node("BatchNormalization", ["conv_out", *list(weights)[1:]], ["bn_out"]),
    ]
    x = helper.make_tensor_value_info("x", 1, [1, 3, 5, 2])
    y = helper.make_tensor_value_info("bn_out", 1, [1, 4, 5, 2])
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "conv_bn", [x], [y], held)
    opset = [helper.make_opsetid("", 17)]
    imported = import_onnx(helper.make_model(graph, opset_imports=opset)).module
    folded, modified = fold_batch_norm(imported, context())
    assert modified
    assert operators(folded) == {"nn.conv2d": 1, "add": 1}


def test_layer_norm_gives_mean_and_deviation() -> None:
    feeds = {"x": _floats(2, 3, 4), "s2": _floats(3, 4), "b2": _floats(3, 4), "s1": _floats(4)}
    nodes = [
        variant("LayerNormalization", "x s2 b2", 3, axis=1),
        variant("LayerNormalization", "x s1", 3),
        variant("LayerNormalization", "x s1", 1, epsilon=0.1),
    ]
    check_variants(nodes, feeds, opset=17, symbolic={"x": ["n", 3, 4]})


def test_rms_norm_over_all_axes() -> None:
    feeds = {"x": _floats(2, 3, 4), "s3": _floats(2, 3, 4), "s1": _floats(4)}
    nodes = [variant("RMSNormalization", "x s3", axis=0), variant("RMSNormalization", "x s1")]
    check_variants(nodes, feeds, by="reference", opset=23)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_normalizations(dtype: str) -> None:
    """Half precision sums in single: values of some hundreds would overflow when squared."""
    feeds = {
        "x": (_floats(2, 6, 5, 4) * (300 if dtype == "float16" else 1)).astype(dtype),
        "scale": _floats(6).astype(dtype),
        "bias": _floats(6).astype(dtype),
    }
    nodes = [
        variant("InstanceNormalization", "x scale bias"),
        variant("MeanVarianceNormalization", "x", axes=[0, -1]),
        variant("LRN", "x", size=4, alpha=0.5, beta=0.6),
    ]
    wide = {name: array.astype("float64") for name, array in feeds.items()}
    expected = _reference(wide)
    import relaxc
    from tests.frontends.onnx.many_nodes import model_of

    model = model_of(nodes, feeds, opset=21)
    results = relaxc.compile(model, threads=1, progress=False)(**feeds)
    tolerance = 5e-3 if dtype == "float16" else 1e-4
    for got, want in zip(results, expected, strict=True):
        have = np.asarray(got)
        assert have.dtype == np.dtype(dtype)
        np.testing.assert_allclose(have.astype("float64"), want, rtol=tolerance, atol=tolerance)


def _reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    x, column = feeds["x"], (1, 6, 1, 1)
    centered = x - x.mean((2, 3), keepdims=True)
    unit = centered / np.sqrt((centered**2).mean((2, 3), keepdims=True) + 1e-5)
    instance = unit * feeds["scale"].reshape(column) + feeds["bias"].reshape(column)
    whole = x - x.mean((0, 3), keepdims=True)
    whole = whole / (np.sqrt((whole**2).mean((0, 3), keepdims=True)) + 1e-9)
    squares = np.pad(x**2, [(0, 0), (1, 2), (0, 0), (0, 0)])
    total = sum(squares[:, k : k + 6] for k in range(4))
    return [instance, whole, x / (1 + 0.5 / 4 * total) ** 0.6]


def test_group_norm() -> None:
    feeds = {"x": _floats(2, 6, 5, 4), "g": _floats(6), "h": _floats(6)}
    node = variant("GroupNormalization", "x g h", num_groups=3)
    check_variants([node], feeds, by="reference", opset=21)


@pytest.mark.parametrize("opset", [13, 17])
def test_rms_norm_as_exporters_write_it(opset: int) -> None:
    """The default domain has no such schema; ONNX Runtime takes it there, inside branches too."""
    norm = helper.make_node("SimplifiedLayerNormalization", ["x", "scale"], ["y"], epsilon=1e-6)
    model = make_model(
        [norm], {"x": ("float32", ["n", 8])}, ["y"], {"scale": _floats(8)}, opset=opset
    )
    x = _floats(3, 8)
    (want,) = run_reference(model, {"x": x})
    got = relaxc.compile(model, threads=1, progress=False)(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_operator_that_nobody_knows_is_still_refused() -> None:
    node = helper.make_node("SimplifiedLayerNorm", ["x"], ["y"])
    with pytest.raises(relaxc.UnsupportedOperator, match="SimplifiedLayerNorm"):
        relaxc.compile(make_model([node], {"x": ("float32", [8])}, ["y"]), progress=False)
