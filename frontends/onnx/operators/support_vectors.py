"""Support vector machines of the ai.onnx.ml domain."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.computations.post_transform import transform_scores
from frontends.computations.support_vectors import class_probabilities, kernel_values
from frontends.dims import is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.machine_learning import (
    ML,
    integer_labels,
    label_of_greatest,
    linear_scores,
    matrix,
)
from frontends.onnx.registry import converter

# Pairwise probabilities are kept this far from 0 and 1 (LIBSVM).
_LEAST = 1e-7


def _numbers(op: Op, name: str) -> np.ndarray:
    return np.asarray(op.attr(name) or [], "float32")


def _values(op: Op, count: int) -> relax.Expr:
    """Return the kernel function of each row and each of `count` support vectors."""
    vectors, width = _numbers(op, "support_vectors"), op.shape()[-1]
    if not is_static(width):
        width = vectors.size // count
    if vectors.size != count * width:
        raise InvalidModel(f"{vectors.size} numbers for {count} support vectors of {width}")
    width = int(width)
    name = op.attr("kernel_type", "LINEAR")
    gamma, coef0, degree = (op.attr("kernel_params") or [0.0, 0.0, 0.0])[:3]
    return kernel_values(
        op.emit, op.te, matrix(op, width), vectors.reshape(count, width), name, gamma, coef0, degree
    )


@converter("SVMRegressor", domain=ML)
def svm_regressor(op: Op) -> relax.Expr:
    """Return the weighted sum of kernel values plus rho; its sign for a one-class machine."""
    count = int(op.attr("n_supports", 0))
    rho, coefficients = _numbers(op, "rho"), _numbers(op, "coefficients")
    if rho.size != 1:
        raise op.unsupported(f"{rho.size} values of rho")
    if count:
        if coefficients.size != count:
            raise InvalidModel(f"{coefficients.size} coefficients for {count} support vectors")
        column = op.const(coefficients.reshape(-1, 1), "float32")
        product = op.emit(R.matmul(_values(op, count), column))
        score = op.emit(R.add(product, op.const(rho, "float32")))
    else:
        score = linear_scores(op, coefficients.reshape(1, -1), rho.tolist())
    if op.attr("one_class", 0):
        positive = op.emit(R.greater(score, op.const(0, "float32")))
        score = op.emit(R.where(positive, op.const(1, "float32"), op.const(-1, "float32")))
    return transform_scores(op.emit, score, op.attr("post_transform", "NONE"))


@converter("SVMClassifier", domain=ML)
def svm_classifier(op: Op) -> Any:
    """Return the label with most wins of all pairs of classes, and scores.

    The scores are class probabilities where prob_a and prob_b are given, else the decision values
    of the pairs; the single decision value s of two classes becomes (-s, s).
    """
    labels = integer_labels(op, "classlabels_ints")
    counts = [int(count) for count in op.attr("vectors_per_class") or []]
    if not counts:
        raise op.unsupported("a linear model without support vectors")
    classes = len(labels)
    if classes < 2 or len(counts) != classes:
        raise op.unsupported(f"{len(counts)} groups of support vectors for {classes} classes")
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    rho = _numbers(op, "rho")
    if rho.size != len(pairs):
        raise InvalidModel(f"{rho.size} values of rho for {len(pairs)} pairs of classes")
    total = sum(counts)
    weights = op.const(_pair_weights(op, counts, pairs), "float32")
    decisions = op.emit(R.matmul(_values(op, total), weights))
    decisions = op.emit(R.add(decisions, op.const(rho, "float32")))
    names = label_of_greatest(op, _wins(op, decisions, classes, pairs), labels)
    transform = op.attr("post_transform", "NONE")
    a, b = _numbers(op, "prob_a"), _numbers(op, "prob_b")
    if a.size:
        if a.size != len(pairs) or b.size != len(pairs):
            raise InvalidModel("prob_a and prob_b need a number for each pair of classes")
        line = op.emit(R.multiply(decisions, op.const(-a, "float32")))
        line = op.emit(R.subtract(line, op.const(b, "float32")))
        fitted = op.emit(R.clip(op.emit(R.sigmoid(line)), _LEAST, 1 - _LEAST))
        scores = op.te(
            lambda t: class_probabilities(t, classes), fitted, name="class_probabilities"
        )
    elif classes == 2:
        scores = op.emit(R.concat([op.emit(R.negative(decisions)), decisions], 1))
    else:
        scores = decisions
    return names, transform_scores(op.emit, scores, transform)


def _pair_weights(op: Op, counts: list[int], pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the weight of each support vector for each pair of classes."""
    total, classes = sum(counts), len(counts)
    coefficients = _numbers(op, "coefficients")
    if coefficients.size != total * (classes - 1):
        raise InvalidModel(f"{coefficients.size} coefficients for {total} support vectors")
    coefficients = coefficients.reshape(classes - 1, total)
    ends = np.cumsum(counts)
    weights = np.zeros((total, len(pairs)), "float32")
    for column, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i] - counts[i], ends[i]), slice(ends[j] - counts[j], ends[j])
        weights[of_i, column] = coefficients[j - 1, of_i]
        weights[of_j, column] = coefficients[i, of_j]
    return weights


def _wins(op: Op, decisions: relax.Expr, classes: int, pairs: list[tuple[int, int]]) -> relax.Expr:
    """Return how many pairs each class wins."""
    first = np.zeros((len(pairs), classes), "float32")
    second = np.zeros((len(pairs), classes), "float32")
    for row, (i, j) in enumerate(pairs):
        first[row, i], second[row, j] = 1, 1
    positive = op.emit(R.greater(decisions, op.const(0, "float32")))
    won = op.emit(R.astype(positive, "float32"))
    # The second class wins where the first one does not.
    gain = op.emit(R.matmul(won, op.const(first - second, "float32")))
    return op.emit(R.add(gain, op.const(second.sum(0), "float32")))
