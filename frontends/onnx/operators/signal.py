"""Fourier transforms, window functions and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.fourier import (
    MAX_MATRIX_LENGTH,
    Transform,
    fast_transform,
    frames,
    sizes_along,
    transform_matrix,
)
from frontends.computations.sample_points import wide_float
from frontends.computations.windows import cosine_window, mel_filters
from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.run_time_size import parts, read_sizes, run_time_size
from frontends.onnx.registry import converter


@converter("DFT", since=17)
def dft_attribute(op: Op) -> relax.Expr:
    """Transform along the attribute `axis` (opset 17 to 19)."""
    return _dft(op, int(op.attr("axis", 1)))


@converter("DFT", since=20)
def dft_input(op: Op) -> relax.Expr:
    """Transform along an axis that an input gives (opset 20 on)."""
    if op.has(2) and op.constant(2) is None:
        return _dft_along_unknown(op)
    return _dft(op, op.ints(2, "axis")[0] if op.has(2) else -2)


def _read_transform(op: Op) -> Transform:
    return Transform(bool(op.attr("inverse", 0)), bool(op.attr("onesided", 0)))


def _dft_along_unknown(op: Op) -> relax.Expr:
    """Transform along an axis that is known only at run time: sizes are read in its terms."""
    shape, transform = list(op.shape()), _read_transform(op)
    rank, pieces = len(shape), shape[-1]
    same_size = not op.has(1) and not transform.onesided
    wanted = [run_time_size(op, 1)] if op.has(1) else []
    axis = op.emit(exact_reshape(indices_within(op, 2, [rank]), relax.ShapeExpr([1])))
    sizes = op.te(
        lambda a, dims: sizes_along(a, dims[: rank - 1], transform, *dims[rank - 1 :]),
        axis, name="sizes_along", dims=[*shape[:-1], *wanted],
    )  # fmt: skip
    outer, given, inner, length, *results = read_sizes(op, sizes)
    x = op.emit(exact_reshape(op.x(), relax.ShapeExpr([outer, given, inner, pieces])))
    x = op.emit(R.permute_dims(x, [0, 2, 1, 3]))
    y = transform_rows(op, x, [outer, inner, given, pieces], length, transform)
    y = op.emit(R.permute_dims(y, [0, 2, 1, 3]))
    results = shape[:-1] if same_size else results
    return exact_reshape(y, relax.ShapeExpr([*results, 1 if transform.is_real else 2]))


def _dft(op: Op, axis: int) -> relax.Expr:
    shape = list(op.shape())
    rank = len(shape)
    axis = normalize_axis(axis, rank)
    if axis == rank - 1 or shape[-1] not in (1, 2):
        raise InvalidModel(f"a transform along axis {axis} of shape {shape}")
    transform = _read_transform(op)
    if op.has(1):
        length = run_time_size(op, 1)
    elif transform.is_real:
        length = op.arithmetic.simplify((shape[axis] - 1) * 2)
    else:
        length = shape[axis]
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    x = op.x()
    moved = axis != rank - 2
    if moved:
        x = op.emit(R.permute_dims(x, order))
    result = transform_rows(op, x, [shape[a] for a in order], length, transform)
    if not moved:
        return result
    back = sorted(range(rank), key=lambda place: order[place])
    return R.permute_dims(result, back)


def transform_rows(
    op: Op, x: relax.Expr, shape: list[Dim], length: Dim, transform: Transform
) -> relax.Expr:
    """Emit the transform of `x`, of shape (..., given, 1 or 2) and input 0's dtype."""
    dtype, wide = op.dtype(), wide_float(op.dtype())
    *outer, given, pieces = shape
    if dtype != wide:
        x = op.emit(R.astype(x, wide))
    simplify = op.arithmetic.simplify
    result_shape = [*outer, simplify(transform.outputs(length)), 1 if transform.is_real else 2]
    op.require_at_most(1, length, "length_of_the_transform")
    short = is_static(length) and is_static(given)
    if short and max(length, given) <= MAX_MATRIX_LENGTH:
        matrix = transform_matrix(int(given), int(pieces), int(length), transform)
        flat = op.emit(exact_reshape(x, relax.ShapeExpr([*outer, given * pieces])))
        result = op.emit(R.matmul(flat, op.const(matrix, wide)))
    else:
        rows = op.arithmetic.product(outer)
        flat = op.emit(exact_reshape(x, relax.ShapeExpr([rows, given, pieces])))
        together = op.te(
            lambda data, dims: fast_transform(data, dims[0], transform),
            flat, name="fast_fourier_transform", dims=[length],
        )  # fmt: skip
        result = parts(op, together, 1)[0]
    result = op.emit(exact_reshape(result, relax.ShapeExpr(result_shape)))
    return result if dtype == wide else op.emit(R.astype(result, dtype))


@converter("STFT", since=17)
def stft(op: Op) -> relax.Expr:
    """Transform overlapping pieces of a signal."""
    shape = list(op.shape())
    x = op.x()
    if len(shape) == 2:  # real numbers without an axis for the parts, as PyTorch exports them
        shape = [*shape, 1]
        x = op.emit(exact_reshape(x, relax.ShapeExpr(shape)))
    step = run_time_size(op, 1)
    window = op.x(2) if op.has(2) else None
    if op.has(3):
        length = run_time_size(op, 3)
    elif window is not None:
        length = op.shape(2)[0]
    else:
        length = shape[1]
    op.require_at_most(1, step, "frames_advance")
    op.require_at_most(length, shape[1], "frames_fit_the_signal")
    count = op.arithmetic.simplify(op.arithmetic.truncdiv(shape[1] - length, step) + 1)
    if op.has(2):
        op.state(2, [length])
        window = op.x(2)
    given = [window] if window is not None else []
    pieces = op.te(
        lambda signal, *rest: frames(signal, rest[0] if given else None, *rest[-1]),
        x, *given, name="frames", dims=[count, step, length],
    )  # fmt: skip
    onesided = bool(op.attr("onesided", 1)) and shape[2] == 1
    frame_shape = [shape[0], count, length, shape[2]]
    return transform_rows(op, pieces, frame_shape, length, Transform(onesided=onesided))


_WINDOWS = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25.0 / 46.0, 21.0 / 46.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@converter(*_WINDOWS, since=17)
def window_function(op: Op) -> relax.Expr:
    """Return a window of a size that may be known only at run time."""
    size = run_time_size(op, 0)
    op.require_at_most(0, size, "window_size")
    periodic, dtype = bool(op.attr("periodic", 1)), _output_dtype(op)
    coefficients = _WINDOWS[op.node.op_type]
    return op.te(lambda dims: cosine_window(dims[0], coefficients, periodic, dtype), dims=[size])


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(op: Op) -> relax.Expr:
    """Return the mel filters as a matrix from spectrum to bands."""
    bands, length = run_time_size(op, 0), run_time_size(op, 1)
    dtype = _output_dtype(op)
    return op.te(
        lambda rate, low, high, dims: mel_filters(dims[0], dims[1], rate, low, high, dtype),
        op.x(2), op.x(3), op.x(4), dims=[bands, length],
    )  # fmt: skip


def _output_dtype(op: Op) -> str:
    kind: Any = op.attr("output_datatype", onnx.TensorProto.FLOAT)
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)))
