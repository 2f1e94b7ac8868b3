"""Scalers, encoders, linear models and support vector machines of the ai.onnx.ml domain.

Strings are no tensors here: operators that give or take them are refused. Results whose type the
specification fixes to float are computed in float32, or in float64 where the input is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.post_transform import transform_scores
from frontends.dims import dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, numpy_dtype
from frontends.onnx.operators.elementwise import is_float
from frontends.onnx.registry import converter, refuse

ML = "ai.onnx.ml"


def features(op: Op, place: int = 0, dtype: str = "float32") -> relax.Expr:
    """Return an input converted to a float dtype."""
    return op.x(place) if op.dtype(place) == dtype else op.emit(R.astype(op.x(place), dtype))


def matrix(op: Op, width: int) -> relax.Expr:
    """Return input 0 as matrix of `width` float32 columns; a vector is one row."""
    if op.ndim() not in (1, 2):
        raise InvalidModel(f"a matrix is needed, not a tensor of rank {op.ndim()}")
    x = features(op)
    if op.ndim() == 1:
        x = op.emit(R.expand_dims(x, 0))
    return op.as_shape(x, [dims_of(x)[0], width])


@converter("Scaler", domain=ML)
def scaler(op: Op) -> relax.Expr:
    """Return (x - offset) * scale as float32."""
    offset, scale = op.attr("offset", [0.0]), op.attr("scale", [1.0])
    centered = op.emit(R.subtract(features(op), op.const(offset, "float32")))
    return R.multiply(centered, op.const(scale, "float32"))


@converter("Binarizer", domain=ML)
def binarizer(op: Op) -> relax.Expr:
    """Return 1 where x exceeds the threshold, else 0, in x's dtype."""
    threshold = float(op.attr("threshold", 0.0))
    if is_float(op.dtype()):
        above = op.emit(R.greater(op.x(), op.const(threshold)))
    else:
        above = op.emit(R.greater(op.x(), op.const(int(np.floor(threshold)))))
    return R.astype(above, op.dtype())


@converter("Normalizer", domain=ML)
def normalizer(op: Op) -> relax.Expr:
    """Divide each row by its maximum, its sum of magnitudes, or its Euclidean norm, as float32.

    Rows whose divisor is 0 stay as they are. As in ONNX Runtime, MAX divides by the greatest
    element, signed.
    """
    x, norm = features(op), op.attr("norm", "MAX")
    axis = op.ndim() - 1
    if norm == "MAX":
        divisor = op.emit(R.max(x, [axis], True))
    elif norm == "L1":
        divisor = op.emit(R.sum(op.emit(R.abs(x)), [axis], True))
    else:
        divisor = op.emit(R.sqrt(op.emit(R.sum(op.emit(R.multiply(x, x)), [axis], True))))
    empty = op.emit(R.equal(divisor, op.const(0, "float32")))
    return R.divide(x, op.emit(R.where(empty, op.const(1, "float32"), divisor)))


@converter("Imputer", domain=ML)
def imputer(op: Op) -> relax.Expr:
    """Replace elements that equal a value (NaN included) by the column's own one."""
    x = op.x()
    if is_float(op.dtype()):
        values, replaced = op.attr("imputed_value_floats"), op.attr("replaced_value_float", 0.0)
    else:
        values, replaced = op.attr("imputed_value_int64s"), op.attr("replaced_value_int64", 0)
    if not values:
        raise InvalidModel(f"no imputed values for {op.dtype()} elements")
    missing = R.isnan(x) if replaced != replaced else R.equal(x, op.const(replaced))
    return R.where(op.emit(missing), op.const(values), x)


@converter("FeatureVectorizer", domain=ML)
def feature_vectorizer(op: Op) -> relax.Expr:
    """Join inputs along the second axis as float32, each cut or filled with 0 to its size."""
    sizes = op.attr("inputdimensions")
    if not sizes or len(sizes) != len(op.inputs):
        raise InvalidModel("inputdimensions needs one size for each input")
    parts = []
    for place, size in enumerate(sizes):
        x = features(op, place)
        shape = op.shape(place)
        if len(shape) == 1:
            x, shape = op.emit(R.expand_dims(x, 1)), (*shape, 1)
        if len(shape) != 2:
            raise op.unsupported("inputs other than matrices")
        if not is_static(shape[1]):
            x = op.te(lambda x, width=int(size): _with_columns(x, width), x, name="with_columns")
        elif size < shape[1]:
            x = op.emit(R.strided_slice(x, [1], [0], [int(size)]))
        elif size > shape[1]:
            x = op.emit(R.nn.pad(x, [0, 0, 0, int(size) - int(shape[1])]))
        parts.append(x)
    return parts[0] if len(parts) == 1 else R.concat(parts, 1)


def _with_columns(x: te.Tensor, width: int) -> te.Tensor:
    """Return (rows, width): the first columns of a matrix, then zeros."""
    zero = tirx.const(0, str(x.dtype))
    return te.compute(
        [x.shape[0], width],
        lambda row, column: tirx.if_then_else(column < x.shape[1], x(row, column), zero),
        name="with_columns",
    )


@converter("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(op: Op) -> relax.Expr:
    """Take columns (elements of the last axis); a vector gives a matrix of one row."""
    count = op.arithmetic.product(op.shape(1))
    given = indices_within(op, 1, [op.shape()[-1]])
    indices = op.emit(exact_reshape(given, relax.ShapeExpr([count])))
    taken = op.emit(R.take(op.x(), indices, op.ndim() - 1, "clip"))
    return R.expand_dims(taken, 0) if op.ndim() == 1 else taken


@converter("OneHotEncoder", domain=ML)
def one_hot_encoder(op: Op) -> relax.Expr:
    """Return for each element a row with a 1 at its category; unknown ones give a row of 0."""
    categories = op.attr("cats_int64s")
    if not categories:
        raise op.unsupported("categories that are strings")
    if not op.attr("zeros", 1):
        raise op.unsupported("failing at run time for an unknown category (zeros = 0)")
    if len(set(categories)) != len(categories):
        raise op.unsupported("a category that is listed twice")
    x = op.x() if op.dtype() == "int64" else op.emit(R.astype(op.x(), "int64"))
    equal = op.emit(R.equal(op.emit(R.expand_dims(x, -1)), op.const(categories, "int64")))
    return R.astype(equal, "float32")


refuse("CategoryMapper", reason="strings are no tensors of numbers", domain=ML)


@converter("LabelEncoder", domain=ML)
def label_encoder(op: Op) -> relax.Expr:
    """Map numbers by a table; a search in the sorted keys, the default where there is none.

    Float keys match exactly, and NaN matches NaN. Of a repeated key the last value counts.
    """
    keys, values, default = _label_tables(op)
    if keys.size != values.size:
        raise InvalidModel(f"{keys.size} keys for {values.size} values")
    nan_value = default
    if keys.dtype.kind == "f":
        nan_places = np.nonzero(np.isnan(keys))[0]
        if nan_places.size:
            nan_value = values[nan_places[-1]]
        kept = ~np.isnan(keys)
        keys, values = keys[kept], values[kept]
    # The last of equal keys wins: unique() returns the first place, so search from the end.
    keys, places = np.unique(keys[::-1], return_index=True)
    values = values[::-1][places]
    if not keys.size:
        keys, values = np.zeros(1, keys.dtype), np.full(1, default, values.dtype)
    steps = max(1, int(keys.size).bit_length())
    out = str(values.dtype)

    def compute(x: te.Tensor, key: te.Tensor, value: te.Tensor) -> te.Tensor:
        def search(*i: Any) -> Any:
            wanted = x(*i)
            low: Any = tirx.const(0, "int32")
            # Binary search for the last key <= wanted, without branches.
            for bit in range(steps - 1, -1, -1):
                ahead = low + tirx.const(1 << bit, "int32")
                safe = tirx.min(ahead, tirx.const(keys.size - 1, "int32"))
                fits = tirx.all(ahead < keys.size, key(safe) <= wanted)
                low = tirx.Select(fits, ahead, low)
            return low

        place = te.compute(x.shape, search, name="find_key")

        def pick(*i: Any) -> Any:
            wanted, found = x(*i), place(*i)
            chosen = tirx.Select(key(found) == wanted, value(found), tirx.const(default, out))
            if str(x.dtype).startswith("float"):
                chosen = tirx.Select(tirx.isnan(wanted), tirx.const(nan_value, out), chosen)
            return chosen

        return te.compute(x.shape, pick, name="label_encoder")

    default, nan_value = default.item(), nan_value.item()
    return op.te(
        compute, op.x(), op.const(keys, str(keys.dtype)), op.const(values, out), name="LabelEncoder"
    )


def _label_tables(op: Op) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys, values and the default, or refuse strings."""
    strings = ("classes_strings", "keys_strings", "values_strings")
    if any(op.has_attr(name) for name in strings):
        raise op.unsupported("strings")
    if op.has_attr("keys_tensor"):
        keys = np.asarray(op.attr("keys_tensor")).reshape(-1)
    elif op.has_attr("keys_int64s"):
        keys = np.asarray(op.attr("keys_int64s"), "int64")
    else:
        keys = np.asarray(op.attr("keys_floats", []), "float32")
    if op.has_attr("values_tensor"):
        values = np.asarray(op.attr("values_tensor")).reshape(-1)
    elif op.has_attr("values_int64s"):
        values = np.asarray(op.attr("values_int64s"), "int64")
    else:
        values = np.asarray(op.attr("values_floats", []), "float32")
    if keys.dtype.kind not in "iuf" or values.dtype.kind not in "iuf":
        raise op.unsupported("strings")
    if keys.dtype != numpy_dtype(op.dtype()):
        raise InvalidModel(f"keys of {keys.dtype} for elements of {op.dtype()}")
    if op.has_attr("default_tensor"):
        default = np.asarray(op.attr("default_tensor")).reshape(-1)[:1].astype(values.dtype)
    elif values.dtype.kind == "f":
        default = np.asarray([op.attr("default_float", -0.0)], values.dtype)
    else:
        default = np.asarray([op.attr("default_int64", -1)], values.dtype)
    return keys, values, default.reshape(())


@converter("LinearRegressor", domain=ML)
def linear_regressor(op: Op) -> relax.Expr:
    """Return x W' + intercepts, one column a target."""
    targets = int(op.attr("targets", 1))
    weights = np.asarray(op.attr("coefficients"), "float32").reshape(targets, -1)
    scores = linear_scores(op, weights, op.attr("intercepts"))
    return transform_scores(op.emit, scores, op.attr("post_transform", "NONE"))


def linear_scores(op: Op, weights: np.ndarray, intercepts: list[float] | None) -> relax.Expr:
    """Return x W' + intercepts as float32 for constant weights (targets, features)."""
    if is_static(op.shape()[-1]) and weights.shape[1] != op.shape()[-1]:
        raise InvalidModel(f"{weights.shape[1]} weights a target for {op.shape()[-1]} features")
    x = matrix(op, weights.shape[1])
    product = op.emit(R.matmul(x, op.const(np.ascontiguousarray(weights.T), "float32")))
    if not intercepts:
        return product
    if len(intercepts) not in (1, weights.shape[0]):
        raise InvalidModel(f"{len(intercepts)} intercepts for {weights.shape[0]} targets")
    return op.emit(R.add(product, op.const(intercepts, "float32")))


@converter("LinearClassifier", domain=ML)
def linear_classifier(op: Op) -> Any:
    """Return the label of the greatest score, and the scores x W' + intercepts transformed."""
    labels = integer_labels(op, "classlabels_ints")
    transform = op.attr("post_transform", "NONE")
    weights = np.asarray(op.attr("coefficients"), "float32")
    weights = weights.reshape(_number_of_scores(op, weights.size, len(labels)), -1)
    scores = linear_scores(op, weights, op.attr("intercepts"))
    if weights.shape[0] == 1 and len(labels) == 2:
        if transform not in ("", "NONE", "LOGISTIC"):
            raise op.unsupported(f"{transform} of a single score, which runtimes take differently")
        positive = op.emit(R.greater(scores, op.const(0, "float32")))
        if transform == "LOGISTIC":
            other = op.emit(R.negative(scores))
        else:
            # As in ONNX Runtime, the score of a model that gives probabilities.
            other = op.emit(R.subtract(op.const(1, "float32"), scores))
        scores = op.emit(R.concat([other, scores], 1))
        names = op.emit(
            R.where(positive, op.const(labels[1], "int64"), op.const(labels[0], "int64"))
        )
        names = op.emit(R.squeeze(names, [1]))
    elif weights.shape[0] == 1:
        raise op.unsupported("one score for other than two classes")
    else:
        names = label_of_greatest(op, scores, labels)
    return names, transform_scores(op.emit, scores, transform)


def _number_of_scores(op: Op, coefficients: int, labels: int) -> int:
    """Return how many rows the coefficients have; two classes may share one."""
    width = op.shape()[-1]
    if is_static(width):
        if not width or coefficients % width:
            raise InvalidModel(f"{coefficients} coefficients for {width} features")
        return coefficients // int(width)
    intercepts = len(op.attr("intercepts", []))
    if labels == 2 and not intercepts:
        raise op.unsupported("a symbolic number of features, of two classes without intercepts")
    count = intercepts or labels
    if coefficients % count:
        raise InvalidModel(f"{coefficients} coefficients for {count} scores")
    return count


def integer_labels(op: Op, attribute: str) -> np.ndarray:
    """Return the integer class labels, or refuse strings."""
    labels = op.attr(attribute)
    if not labels:
        if op.attr("classlabels_strings"):
            raise op.unsupported("class labels that are strings")
        raise InvalidModel("no class labels")
    return np.asarray(labels, "int64")


def label_of_greatest(op: Op, scores: relax.Expr, labels: np.ndarray) -> relax.Expr:
    """Return the label of each row's greatest score, the first of equal ones."""
    places = op.emit(R.argmax(scores, 1))
    if np.array_equal(labels, np.arange(len(labels))):
        return places
    return op.emit(R.take(op.const(labels, "int64"), places, 0, "clip"))


refuse("ZipMap", reason="maps are no tensors; export the model without ZipMap", domain=ML)
refuse("DictVectorizer", "CastMap", reason="maps are no tensors", domain=ML)
