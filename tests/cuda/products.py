"""Products as fused TIR functions, with the NumPy that says what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import te, tirx, topi
from tvm.tirx import PrimFunc

from tir_schedules.cuda.conv2d import conv2d_channels_last

Arrays = list[np.ndarray]
_DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


@dataclass(frozen=True)
class Case:
    """A function, the shapes and types of its inputs and result, and its value in float64."""

    func: PrimFunc
    shapes: list[tuple[int, ...]]
    result: tuple[int, ...]
    expected: Callable[..., np.ndarray]
    dtype: str
    out_dtype: str
    sizes: dict[str, int]

    def inputs(self, seed: int = 0) -> Arrays:
        """Return random inputs."""
        random = np.random.default_rng(seed)
        return [random.standard_normal(s).astype(_DTYPES[self.dtype]) for s in self.shapes]

    def empty(self) -> np.ndarray:
        """Return a result that holds no number yet."""
        return np.full(self.result, np.nan, _DTYPES[self.out_dtype])

    def error(self, inputs: Arrays, result: np.ndarray) -> float:
        """Return the largest error, relative to the largest value."""
        want = self.expected(*(x.astype("float64") for x in inputs))
        return float(np.abs(result.astype("float64") - want).max() / np.abs(want).max())


def matmul(
    rows: int,
    columns: int,
    steps: int,
    *,
    batch: int | None = None,
    dtype: str = "float16",
    transposed: str = "",
    epilogue: bool = True,
    symbolic: bool = False,
    prologue: bool = False,
) -> Case:
    """Return `relu(A B + bias + residual)` in `dtype`, or `A B` in float32.

    Args:
        rows: Of A.
        columns: Of B.
        steps: Columns of A and rows of B.
        batch: How many products, None for one without an axis for it.
        dtype: Of the operands; sums are in float32.
        transposed: "a", "b" or both: the operands that are given transposed.
        epilogue: Whether the product is worked on.
        symbolic: Whether the function takes any number of rows.
        prologue: Whether B, as it is given, is first multiplied by a number for each column.
    """
    m = te.var("m", "int64") if symbolic else rows
    lead = [] if batch is None else [batch]
    left = [steps, m] if "a" in transposed else [m, steps]
    right = [columns, steps] if "b" in transposed else [steps, columns]
    a, b = te.placeholder([*lead, *left], dtype, "a"), te.placeholder([*lead, *right], dtype, "b")
    k = te.reduce_axis((0, steps), "k")
    parameters = [a, b]
    if prologue:
        parameters.append(te.placeholder(b.shape[-1:], dtype, "scale"))
        b = topi.multiply(*parameters[1:])

    def product(*at: tirx.Expr) -> tirx.Expr:
        *n, i, j = at
        x = a(*n, k, i) if "a" in transposed else a(*n, i, k)
        y = b(*n, j, k) if "b" in transposed else b(*n, k, j)
        return te.sum(x.astype("float32") * y.astype("float32"), axis=k)

    result = te.compute([*lead, m, columns], product, "product")
    shapes = [
        tuple(int(s) if isinstance(s, tirx.IntImm) else rows for s in tensor.shape)
        for tensor in parameters
    ]
    if epilogue:
        bias = te.placeholder((columns,), dtype, "bias")
        residual = te.placeholder(result.shape, dtype, "residual")
        result = topi.nn.relu(topi.add(topi.add(topi.cast(result, dtype), bias), residual))
        parameters += [bias, residual]
        shapes += [(columns,), (*lead, rows, columns)]

    def expected(x: np.ndarray, y: np.ndarray, *more: np.ndarray) -> np.ndarray:
        if prologue:
            y, more = y * more[0], more[1:]
        x = np.swapaxes(x, -1, -2) if "a" in transposed else x
        y = np.swapaxes(y, -1, -2) if "b" in transposed else y
        return np.maximum(x @ y + more[0] + more[1], 0) if more else x @ y

    return Case(
        te.create_prim_func([*parameters, result]),
        shapes,
        (*lead, rows, columns),
        expected,
        dtype,
        dtype if epilogue else "float32",
        {"m": rows} if symbolic else {},
    )


def windows(x: np.ndarray, size: int, stride: int, pad: int, fill: float = 0) -> np.ndarray:
    """Return the windows of an NHWC image as [n, y, x, c, i, j]."""
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
    return seen[:, ::stride, ::stride]


def convolved(x: np.ndarray, w: np.ndarray, stride: int, groups: int) -> np.ndarray:
    """Return NHWC images, padded by half a square kernel, convolved with HWIO weights."""
    kernel, _, channels, _ = w.shape
    seen = windows(x, kernel, stride, kernel // 2)
    seen = seen.reshape(*seen.shape[:3], groups, channels, kernel, kernel)
    y = np.einsum("nhwgcij,ijcgo->nhwgo", seen, w.reshape(kernel, kernel, channels, groups, -1))
    return y.reshape(*y.shape[:3], -1)


def convolution(
    size: int,
    channels: int,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    channels_first: bool = False,
    dtype: str = "float16",
) -> Case:
    """Return a padded NHWC convolution of two images with HWIO weights, summed in float32.

    `channels_first`: the images are in NCHW. In groups, what is negative becomes zero.
    """
    pad = kernel // 2
    shapes = [(2, size, size, channels), (kernel, kernel, channels // groups, out)]
    if channels_first:
        shapes[0] = (2, channels, size, size)
    tensors = [
        te.placeholder([tirx.const(size, "int64") for size in shape], dtype, name)
        for shape, name in zip(shapes, "xw", strict=True)
    ]
    result = conv2d_channels_last(
        *tensors,
        strides=(stride, stride),
        padding=(pad, pad, pad, pad),
        dilation=(1, 1),
        groups=groups,
        channels_first=channels_first,
        out_dtype="float32",
    )
    if groups > 1:
        result = topi.nn.relu(result)

    def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x = x.transpose(0, 2, 3, 1) if channels_first else x
        y = convolved(x, w, stride, groups)
        return np.maximum(y, 0) if groups > 1 else y

    side = (size + 2 * pad - kernel) // stride + 1
    func = te.create_prim_func([*tensors, result])
    return Case(func, shapes, (2, side, side, out), expected, dtype, "float32", {})
