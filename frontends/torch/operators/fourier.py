"""Discrete Fourier transforms of real and complex numbers along several axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.fourier import (
    MAX_MATRIX_LENGTH,
    Transform,
    fast_transform,
    transform_matrix,
)
from frontends.torch.complex_numbers import Complex, as_complex
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import complex_converter
from frontends.torch.sizes import inverse, product
from frontends.torch.symbolic_shapes import Size


@complex_converter("aten._fft_r2c.default")
def real_to_complex(
    b: GraphBuilder, x: Value, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    """Transform real numbers; `normalization` 0 keeps sums, 1 divides by the root of n, 2 by n."""
    *others, last = dim
    data = b.tensor(x, b.dtype)
    lengths = [b.shape(data)[axis] for axis in dim]
    result = _along(b, [data], last, lengths[-1], Transform(onesided=onesided))
    for axis, length in zip(others, lengths, strict=False):
        result = _along(b, result, axis, length, Transform())
    return Complex(*_scaled(b, result, lengths, normalization))


@complex_converter("aten._fft_c2c.default")
def complex_to_complex(
    b: GraphBuilder, x: Value, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    """Transform complex numbers."""
    result = list(as_complex(b, x, b.dtype).parts)
    lengths = [b.shape(result[0])[axis] for axis in dim]
    for axis, length in zip(dim, lengths, strict=True):
        result = _along(b, result, axis, length, Transform(inverse=not forward))
    return Complex(*_scaled(b, result, lengths, normalization, [] if forward else lengths))


@complex_converter("aten._fft_c2r.default")
def complex_to_real(
    b: GraphBuilder, x: Value, dim: Sequence[int], normalization: int, last_dim_size: Any
) -> relax.Expr:
    """Transform the frequencies of a real signal back; of the last axis only half is read."""
    result = list(as_complex(b, x, b.dtype).parts)
    *others, last = dim
    lengths = [*(b.shape(result[0])[axis] for axis in others), b.size(last_dim_size)]
    for axis, length in zip(others, lengths, strict=False):
        result = _along(b, result, axis, length, Transform(inverse=True))
    result = _along(b, result, last, lengths[-1], Transform(inverse=True, onesided=True))
    return _scaled(b, result, lengths, normalization, lengths)[0]


def _scaled(
    b: GraphBuilder,
    parts: Sequence[relax.Expr],
    lengths: Sequence[Size],
    normalization: int,
    divided: Sequence[Size] = (),
) -> list[relax.Expr]:
    """Normalize; inverse transforms have divided by the lengths in `divided` already."""
    power = {0: 0.0, 1: -0.5, 2: -1.0}[normalization] + (1.0 if divided else 0.0)
    if power == 0:
        return list(parts)
    count = product(lengths)
    if isinstance(count, int):
        factor: relax.Expr = relax.const(math.pow(count, power), b.dtype)
    else:
        base = b.cast(b.size_tensor(count), b.dtype)
        factor = b.emit(R.power(base, relax.const(power, b.dtype)))
    return [b.emit(R.multiply(part, factor)) for part in parts]


def _along(
    b: GraphBuilder, parts: Sequence[relax.Expr], axis: int, length: Size, transform: Transform
) -> list[relax.Expr]:
    """Transform one axis of a real tensor, or of real and imaginary parts."""
    rank = parts[0].ty.ndim
    axis = b.axis(axis, rank)
    order = [*(a for a in range(rank) if a != axis), axis]
    rows = [b.permute(part, order) for part in parts]
    given = b.shape(rows[0])[-1]
    if isinstance(given, int) and isinstance(length, int):
        if max(given, length) <= MAX_MATRIX_LENGTH:
            results = _by_matrix(b, rows, given, length, transform)
            return [b.permute(part, inverse(order)) for part in results]
    results = _by_kernel(b, rows, length, transform)
    return [b.permute(part, inverse(order)) for part in results]


def _by_matrix(
    b: GraphBuilder, rows: Sequence[relax.Expr], given: int, length: int, transform: Transform
) -> list[relax.Expr]:
    """Multiply [re, im] by one matrix, whose columns are first all real, then all imaginary."""
    count = transform.outputs(length)
    kinds = 1 if transform.is_real else 2
    matrix = transform_matrix(given, len(rows), length, transform)
    matrix = matrix.reshape(given, len(rows), count, kinds).transpose(1, 0, 3, 2)
    matrix = np.ascontiguousarray(matrix.reshape(len(rows) * given, kinds * count))
    axis = rows[0].ty.ndim - 1
    together = rows[0] if len(rows) == 1 else b.emit(R.concat(list(rows), axis))
    result = b.emit(R.matmul(together, relax.const(matrix.astype(b.dtype), b.dtype)))
    if kinds == 1:
        return [result]
    return [b.emit(b.slice_axis(result, axis, k * count, (k + 1) * count)) for k in range(2)]


def _by_kernel(
    b: GraphBuilder, rows: Sequence[relax.Expr], length: Size, transform: Transform
) -> list[relax.Expr]:
    *outer, given = b.shape(rows[0])
    flat = [b.reshape(part, [product(outer), given, 1]) for part in rows]
    pairs = flat[0] if len(flat) == 1 else b.emit(R.concat(flat, 2))

    def compute(data: te.Tensor, dims: Sequence[Size]) -> list[te.Tensor]:
        return fast_transform(data, dims[0], transform)

    together = b.te(compute, pairs, name="fast_fourier_transform", dims=[length])
    result = b.parts(together, 1)[0]
    shape = [*outer, transform.outputs(length)]
    kinds = 1 if transform.is_real else 2
    return [b.reshape(b.emit(b.slice_axis(result, 2, k, k + 1)), shape) for k in range(kinds)]
