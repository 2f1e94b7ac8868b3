"""Kernel functions of support vector machines, and class probabilities from pairwise ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, kernel, parallel, serial, when

Emit = Callable[[relax.Expr], relax.Expr]
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def kernel_values(
    emit: Emit,
    emit_te: Callable[..., relax.Expr],
    x: relax.Expr,
    vectors: np.ndarray,
    name: str,
    gamma: float,
    coef0: float,
    degree: float,
) -> relax.Expr:
    """Return the kernel function of each row and each support vector.

    Args:
        emit: Binds an intermediate result.
        emit_te: Emits a tensor expression of some tensors.
        x: (rows, features), float32.
        vectors: (vectors, features).
        name: LINEAR, x·v; POLY, (gamma x·v + coef0)^degree; SIGMOID, tanh(gamma x·v + coef0);
            RBF, exp(-gamma |x - v|²).
        gamma: See there.
        coef0: See there.
        degree: See there.

    Returns:
        (rows, vectors), float32.
    """
    vectors = np.ascontiguousarray(vectors, "float32")
    if name == "RBF":

        def distance(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            f = te.reduce_axis((0, a.shape[1]), "f")
            return te.compute(
                (a.shape[0], b.shape[0]),
                lambda i, j: te.sum((a[i, f] - b[j, f]) * (a[i, f] - b[j, f]), axis=f),
                name="squared_distance",
            )

        squares = emit_te(distance, x, relax.const(vectors), name="squared_distance")
        return emit(R.exp(emit(R.multiply(squares, relax.const(-gamma, "float32")))))
    product = emit(R.matmul(x, relax.const(np.ascontiguousarray(vectors.T))))
    if name == "LINEAR":
        return product
    scaled = emit(R.multiply(product, relax.const(gamma, "float32")))
    moved = emit(R.add(scaled, relax.const(coef0, "float32")))
    if name == "SIGMOID":
        return emit(R.tanh(moved))
    return emit(R.power(moved, relax.const(degree, "float32")))


def class_probabilities(pairs: te.Tensor, classes: int) -> te.Tensor:
    """Return class probabilities that fit pairwise ones best.

    T.-F. Wu, C.-J. Lin, R. Weng, "Probability estimates for multi-class classification by pairwise
    coupling" (2004), the second method, as LIBSVM iterates it.

    Args:
        pairs: (rows, classes * (classes - 1) / 2): the probability of i against j for i < j, in the
            order (0, 1), (0, 2), ...
        classes: At least 2.

    Returns:
        (rows, classes), float32.
    """
    rows = pairs.shape[0]
    steps = max(100, classes)
    enough = 0.005 / classes
    first: dict[tuple[int, int], int] = {}
    for i in range(classes):
        for j in range(i + 1, classes):
            first[i, j] = len(first)

    def body(ins: list[Any], outs: list[Any]) -> None:
        given, (p, q, qp) = ins[0], outs

        def wins(row: Any, i: int, j: int) -> Any:
            """The probability of i against j."""
            if i < j:
                return given[row, first[i, j]]
            return tirx.const(1, "float32") - given[row, first[j, i]]

        with parallel(rows) as row:
            for i in range(classes):
                p[row, i] = tirx.const(1 / classes, "float32")
                diagonal: Any = tirx.const(0, "float32")
                for j in range(classes):
                    if i != j:
                        diagonal = diagonal + wins(row, j, i) * wins(row, j, i)
                        q[row, i, j] = -(wins(row, j, i) * wins(row, i, j))
                q[row, i, i] = diagonal
            going = Scalar(True, "bool")
            count = Scalar(0)
            with T.While(tirx.all(going(), count() < steps)):
                total, worst = Scalar(0.0, "float32"), Scalar(0.0, "float32")
                with serial(classes) as i:
                    qp[row, i] = tirx.const(0, "float32")
                    with serial(classes) as j:
                        qp[row, i] = qp[row, i] + q[row, i, j] * p[row, j]
                    total.set(total() + p[row, i] * qp[row, i])
                with serial(classes) as i:
                    worst.set(tirx.max(worst(), tirx.abs(qp[row, i] - total())))
                going.set(worst() >= tirx.const(enough, "float32"))
                count.set(count() + 1)
                with when(going()), serial(classes) as i:
                    one = tirx.const(1, "float32")
                    step = Scalar((total() - qp[row, i]) / q[row, i, i], "float32")
                    p[row, i] = p[row, i] + step()
                    square = step() * q[row, i, i] + tirx.const(2, "float32") * qp[row, i]
                    total.set((total() + step() * square) / (one + step()) / (one + step()))
                    with serial(classes) as j:
                        qp[row, j] = (qp[row, j] + step() * q[row, i, j]) / (one + step())
                        p[row, j] = p[row, j] / (one + step())

    outputs: list[tuple[Any, str]] = [
        ((rows, classes), "float32"),
        ((rows, classes, classes), "float32"),
        ((rows, classes), "float32"),
    ]
    return kernel([pairs], outputs, body, "class_probabilities")[0]
