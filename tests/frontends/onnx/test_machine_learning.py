"""ai.onnx.ml: tree ensembles, linear models and feature preparation against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxc
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import (
    assert_like_reference,
    make_model,
    run_imported,
    run_reference,
)

ML = "ai.onnx.ml"
RNG = np.random.default_rng(11)


def _model(
    op: str,
    *inputs: np.ndarray,
    outputs: dict[str, int] | None = None,
    version: int = 3,
    **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    feeds = {f"x{place}": array for place, array in enumerate(inputs)}
    types = outputs or {"y": TensorProto.FLOAT}
    node = helper.make_node(op, list(feeds), list(types), domain=ML, **attrs)
    kinds = {name: (array.dtype, array.shape) for name, array in feeds.items()}
    model = make_model(
        [node], kinds, list(types), opset=18, domains={ML: version}, output_types=types
    )
    return model, feeds


def _check(
    op: str, *inputs: np.ndarray, outputs: dict[str, int] | None = None, version: int = 3,
    tolerance: float = 1e-5, **attrs: Any,
) -> None:  # fmt: skip
    model, feeds = _model(op, *inputs, outputs=outputs, version=version, **attrs)
    assert_like_reference(model, feeds, tolerance=tolerance)


CLASSES = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}


class Forest:
    """A random forest in the lists of versions 1 and 3."""

    def __init__(self, trees: int, features: int, votes: int, *, positive: bool = False) -> None:
        rng = np.random.default_rng(trees * 7 + votes)
        self.nodes: dict[str, list[Any]] = {
            f"nodes_{name}": []
            for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                         "falsenodeids", "missing_value_tracks_true")
        }  # fmt: skip
        self.votes: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}
        modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
        for tree in range(trees):
            interior = 3 + tree % 4  # a comb, whose depth differs from tree to tree
            for node in range(2 * interior + 1):
                leaf = node == 2 * interior or node % 2 == 1
                row = {
                    "treeids": tree, "nodeids": node,
                    "featureids": 0 if leaf else int(rng.integers(features)),
                    "values": 0.0 if leaf else float(np.float32(rng.standard_normal())),
                    "modes": "LEAF" if leaf else "BRANCH_" + modes[int(rng.integers(6))],
                    "truenodeids": 0 if leaf else node + 1,
                    "falsenodeids": 0 if leaf else node + 2,
                    "missing_value_tracks_true": int(rng.integers(2)),
                }  # fmt: skip
                for name, value in row.items():
                    self.nodes[f"nodes_{name}"].append(value)
                if leaf:
                    for vote in range(votes):
                        weight = float(np.float32(rng.standard_normal()))
                        self.votes["treeids"].append(tree)
                        self.votes["nodeids"].append(node)
                        self.votes["ids"].append(vote)
                        self.votes["weights"].append(abs(weight) if positive else weight)

    def attributes(self, kind: str) -> dict[str, Any]:
        return {**self.nodes, **{f"{kind}_{name}": votes for name, votes in self.votes.items()}}


def _rows(count: int, width: int, dtype: str = "float32", *, missing: bool = False) -> np.ndarray:
    x = RNG.standard_normal((count, width)).astype(dtype)
    if missing:
        x[::3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("aggregate", "targets"), [("SUM", 3), ("AVERAGE", 1), ("MIN", 3), ("MAX", 1)]
)
def test_tree_regressor_aggregates(aggregate: str, targets: int) -> None:
    forest = Forest(5, 4, targets)
    _check(
        "TreeEnsembleRegressor", _rows(9, 4, missing=True), n_targets=targets,
        aggregate_function=aggregate, base_values=[0.5] * targets, **forest.attributes("target"),
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_regressor_transforms(transform: str) -> None:
    _check(
        "TreeEnsembleRegressor", _rows(6, 4), n_targets=3, post_transform=transform,
        **Forest(3, 4, 3).attributes("target"),
    )  # fmt: skip


def test_tree_regressor_compares_doubles_as_doubles() -> None:
    forest = Forest(4, 3, 1).attributes("target")
    for name in ("nodes_values", "target_weights"):
        doubles = np.asarray(forest.pop(name), "float64") + 1e-12
        forest[f"{name}_as_tensor"] = numpy_helper.from_array(doubles, name)
    _check("TreeEnsembleRegressor", _rows(7, 3, "float64"), n_targets=1, **forest)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_tree_classifier(transform: str) -> None:
    _check(
        "TreeEnsembleClassifier", _rows(8, 4, missing=True), outputs=CLASSES,
        post_transform=transform, classlabels_int64s=[10, 20, 30],
        **Forest(5, 4, 3).attributes("class"),
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
def test_tree_classifier_of_two_classes_with_one_score(transform: str, positive: bool) -> None:
    forest = Forest(2 if positive else 5, 4, 1, positive=positive).attributes("class")
    if positive:
        forest["class_weights"] = [weight / 8 for weight in forest["class_weights"]]
    _check(
        "TreeEnsembleClassifier", _rows(8, 4), outputs=CLASSES, post_transform=transform,
        classlabels_int64s=[5, 7], **forest,
    )  # fmt: skip


def test_tree_classifier_adds_base_values() -> None:
    _check(
        "TreeEnsembleClassifier", _rows(8, 4), outputs=CLASSES, classlabels_int64s=[0, 1, 2],
        base_values=[0.25, -0.5, 1.0], **Forest(5, 4, 3).attributes("class"),
    )  # fmt: skip


def test_tree_ensemble_of_version_5_with_members() -> None:
    attributes = {
        "n_targets": 2,
        "aggregate_function": 1,
        "nodes_splits": numpy_helper.from_array(np.asarray([3.14, 1.2, 4.2], "float32")),
        "nodes_featureids": [0, 1, 0],
        "nodes_modes": numpy_helper.from_array(np.asarray([0, 6, 6], "uint8")),
        "nodes_truenodeids": [1, 0, 1],
        "nodes_falsenodeids": [2, 2, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falseleafs": [0, 1, 1],
        "membership_values": numpy_helper.from_array(
            np.asarray([1.5, 2.0, np.nan, 12.0, 7.0, np.nan], "float32")
        ),
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": numpy_helper.from_array(np.asarray([5, 12, -12, 4.5], "float32")),
        "tree_roots": [0],
    }
    x = np.asarray([[1, 1.5], [1, 3], [12, 0], [9, 2], [np.nan, 2.0]], "float32")
    _check("TreeEnsemble", x, version=5, **attributes)


def test_tree_ensemble_through_the_whole_compiler_with_a_run_time_number_of_rows() -> None:
    forest = Forest(6, 4, 2).attributes("target")
    model, feeds = _model("TreeEnsembleRegressor", _rows(11, 4), n_targets=2, **forest)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    compiled = relaxc.compile(model, threads=1, progress=False)
    fixed, _ = _model("TreeEnsembleRegressor", feeds["x0"], n_targets=2, **forest)
    np.testing.assert_allclose(
        compiled(feeds["x0"]), run_imported(fixed, feeds)[0], rtol=1e-5, atol=1e-5
    )


def test_tree_with_a_cycle_is_refused() -> None:
    forest = Forest(1, 2, 1).attributes("target")
    forest["nodes_falsenodeids"][2] = 0
    model, _ = _model("TreeEnsembleRegressor", _rows(2, 2), n_targets=1, **forest)
    with pytest.raises(InvalidModel, match="cycle"):
        import_onnx(model)


def test_tree_that_compares_a_missing_feature_is_refused() -> None:
    forest = Forest(2, 4, 1).attributes("target")
    forest["nodes_featureids"][0] = 9
    model, _ = _model("TreeEnsembleRegressor", _rows(2, 4), n_targets=1, **forest)
    with pytest.raises(InvalidModel, match="feature"):
        import_onnx(model)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_scaler(dtype: str) -> None:
    x = (RNG.standard_normal((3, 4)) * 5).astype(dtype)
    _check("Scaler", x, offset=[0.5, 1.0, -1.0, 2.0], scale=[2.0, 0.5, 1.0, 3.0])
    _check("Scaler", x, offset=[0.5], scale=[2.0])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.asarray([[1, -2, 3], [0, 0, 0], [-1, -5, -2]], "float32")
    _check("Normalizer", x, norm=norm)


def test_binarizer() -> None:
    _check("Binarizer", _rows(2, 3), threshold=0.25)


def test_imputer() -> None:
    x = _rows(6, 3, missing=True)
    _check("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    whole = np.asarray([[1, -1, 3], [-1, 5, -1]], "int64")
    _check(
        "Imputer", whole, outputs={"y": TensorProto.INT64}, imputed_value_int64s=[7],
        replaced_value_int64=-1,
    )  # fmt: skip


def test_feature_vectorizer() -> None:
    _check("FeatureVectorizer", _rows(3, 2), _rows(3, 4), inputdimensions=[2, 4])


def test_array_feature_extractor() -> None:
    indices = np.asarray([[2, 0]], "int64")
    _check("ArrayFeatureExtractor", _rows(3, 4), indices)
    _check("ArrayFeatureExtractor", _rows(1, 4)[0], indices)


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_one_hot_encoder(dtype: str) -> None:
    x = np.asarray([[1, 3], [9, 2]], dtype)
    _check("OneHotEncoder", x, cats_int64s=[1, 2, 3])


def test_label_encoder() -> None:
    x = np.asarray([1, 9, 5, 3, -4, 5], "int64")
    _check("LabelEncoder", x, keys_int64s=[5, 1, -4], values_floats=[0.5, 1.5, 2.5],
           default_float=9.0)  # fmt: skip
    floats = np.asarray([1.5, np.nan, 0.25, 7], "float32")
    _check("LabelEncoder", floats, version=4, keys_floats=[0.25, float("nan"), 1.5],
           values_int64s=[1, 2, 3], default_int64=-7, outputs={"y": TensorProto.INT64})  # fmt: skip
    _check(
        "LabelEncoder", np.asarray([3, 4, 5], "int64"), version=4,
        keys_tensor=numpy_helper.from_array(np.asarray([4, 3], "int64")),
        values_tensor=numpy_helper.from_array(np.asarray([40, 30], "int64")),
        default_tensor=numpy_helper.from_array(np.asarray([-2], "int64")),
        outputs={"y": TensorProto.INT64},
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_linear_models(transform: str) -> None:
    x = _rows(4, 3)
    weights = RNG.standard_normal(6).astype("float32").tolist()
    _check("LinearRegressor", x, targets=2, coefficients=weights, intercepts=[0.5, -0.5])
    _check(
        "LinearClassifier", x, outputs=CLASSES, coefficients=weights + weights[:3],
        intercepts=[0.1, 0.2, 0.3], classlabels_ints=[3, 5, 8], post_transform=transform,
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_classifier_of_two_classes_with_one_score(transform: str) -> None:
    _check(
        "LinearClassifier", _rows(4, 3), outputs=CLASSES, coefficients=[0.5, -1.0, 2.0],
        intercepts=[0.1], classlabels_ints=[3, 5], post_transform=transform,
    )  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressor(kernel: str) -> None:
    _check(
        "SVMRegressor", _rows(5, 3), kernel_type=kernel, kernel_params=[0.3, 0.2, 3.0],
        support_vectors=RNG.standard_normal(12).astype("float32").tolist(), n_supports=4,
        coefficients=RNG.standard_normal(4).astype("float32").tolist(), rho=[0.25],
        tolerance=1e-4,
    )  # fmt: skip


def test_linear_svm_regressor() -> None:
    x = _rows(5, 3)
    model, feeds = _model(
        "SVMRegressor", x, kernel_type="LINEAR", coefficients=[0.5, -1.0, 2.0], rho=[0.25]
    )
    expected = x @ np.asarray([[0.5], [-1.0], [2.0]], "float32") + 0.25
    np.testing.assert_allclose(run_imported(model, feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_svm_classifier(classes: int, probabilities: bool) -> None:
    pairs = classes * (classes - 1) // 2
    counts = [2, 3, 2][:classes]
    rng = np.random.default_rng(classes)
    _check(
        "SVMClassifier", _rows(7, 3), outputs=CLASSES, kernel_type="RBF",
        kernel_params=[0.4, 0.0, 3.0], vectors_per_class=counts,
        support_vectors=rng.standard_normal(sum(counts) * 3).astype("float32").tolist(),
        coefficients=rng.standard_normal(sum(counts) * (classes - 1)).astype("float32").tolist(),
        rho=rng.standard_normal(pairs).astype("float32").tolist(),
        classlabels_ints=[4, 6, 9][:classes], tolerance=1e-4,
        **({"prob_a": [-1.5] * pairs, "prob_b": [0.1] * pairs} if probabilities else {}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}),
        ("CategoryMapper", {"cats_int64s": [1], "cats_strings": ["a"]}),
        ("OneHotEncoder", {"cats_strings": ["a"]}),
    ],
)
def test_strings_are_refused(op: str, attributes: dict[str, Any]) -> None:
    model, _ = _model(op, np.asarray([1], "int64"), version=2, **attributes)
    with pytest.raises(UnsupportedOperator, match="strings"):
        import_onnx(model)


WIDTHS: list[tuple[str, dict[str, int], dict[str, Any], int]] = [
    ("TreeEnsembleRegressor", {"y": 1}, {
        "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2],
        "target_ids": [0, 0], "target_weights": [1.0, 2.0]}, 1),
    ("LinearClassifier", CLASSES, {
        "classlabels_ints": [7, 8, 9], "coefficients": [1.0, 2.0, 3.0, 4.0, -1.0, 0.5],
        "intercepts": [0.1, 0.2, 0.3], "post_transform": "SOFTMAX"}, 3),
    ("SVMRegressor", {"y": 1}, {
        "coefficients": [0.5, -0.3], "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0],
        "n_supports": 2, "rho": [0.1], "support_vectors": [1.0, 2.0, 3.0, 4.0]}, 3),
    ("FeatureVectorizer", {"y": 1}, {"inputdimensions": [2]}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("op", "outputs", "attrs", "wrong"), WIDTHS, ids=[w[0] for w in WIDTHS])
def test_a_number_of_features_known_at_run_time(
    op: str, outputs: dict[str, int], attrs: dict[str, Any], wrong: int
) -> None:
    """What the attributes need of the features is checked by a run; `wrong` is not enough."""
    model, _ = _model(op, _rows(4, 2), outputs=outputs, **attrs)
    for axis, name in enumerate(("rows", "features")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    compiled = relaxc.compile(model, threads=1, progress=False)
    widths = (1, 2, 3) if op == "FeatureVectorizer" else (2,)
    for width in widths:
        x = _rows(4, width)
        got = compiled(x)
        for have, want in zip(
            got if len(outputs) > 1 else [got], run_reference(model, {"x0": x}), strict=True
        ):
            assert have.shape == want.shape
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)
    if wrong:
        with pytest.raises(relaxc.RunError, match="features"):
            compiled(_rows(4, wrong))
