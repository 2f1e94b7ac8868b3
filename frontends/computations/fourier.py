"""Discrete Fourier transforms: a matrix for short lengths, a fast transform for long ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, as_dtype, index, kernel, parallel, serial, when

# Up to this length a matrix product costs no more than a fast transform.
MAX_MATRIX_LENGTH = 512


@dataclass(frozen=True)
class Transform:
    """Which transform.

    Attributes:
        inverse: Whether frequencies become a signal; divides by the length.
        onesided: Keep only the first half of the frequencies, floor(length / 2) + 1: forward, that
            is what is returned; inverse, what is read, and the result is real.
    """

    inverse: bool = False
    onesided: bool = False

    @property
    def is_real(self) -> bool:
        """Tell whether the result is real."""
        return self.inverse and self.onesided

    def outputs(self, length: Any) -> Any:
        """Return the number of results of a transform of `length`."""
        if self.onesided and not self.inverse:
            return length // 2 + 1 if isinstance(length, int) else tirx.floordiv(length, 2) + 1
        return length


def transform_matrix(given: int, parts: int, length: int, transform: Transform) -> np.ndarray:
    """Return the matrix that transforms rows of `given` numbers.

    Args:
        given: Numbers in a row; those beyond `length` are ignored, missing ones are zero.
        parts: 1 for real numbers, 2 for pairs of real and imaginary part.
        length: Of the transform.
        transform: Which.

    Returns:
        float64 (given * parts, outputs * 2), or (given * parts, outputs) if the result is real.
    """
    count = transform.outputs(length)
    used = length // 2 + 1 if transform.is_real else length
    rows, columns = np.arange(given), np.arange(count)
    angle = 2 * np.pi * ((rows[:, None] * columns[None, :]) % length) / length
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if transform.inverse else -1)
    share = np.where(rows < used, 1.0, 0.0)
    if transform.inverse:
        share = share / length
    if transform.is_real:  # every frequency but 0 and the middle one stands for two
        twice = (rows > 0) & (2 * rows != length)
        share = share * np.where(twice, 2.0, 1.0)
    matrix = np.zeros((given, parts, count, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, sine
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sine, cosine
    matrix *= share[:, None, None, None]
    if transform.is_real:
        return matrix[..., 0].reshape(given * parts, count)
    return matrix.reshape(given * parts, count * 2)


def fast_transform(x: te.Tensor, length: Any, transform: Transform) -> list[te.Tensor]:
    """Transform each row by Stockham's algorithm in factors of any size (the length's primes).

    Time is proportional to length times the sum of its prime factors. Sums are taken in float64,
    so that frequencies that cancel come out as zeros.

    Args:
        x: (rows, given, 1 or 2), float32 or float64; see `transform_matrix`.
        length: An int or an int64 expression.
        transform: Which.

    Returns:
        (rows, outputs, 1 or 2), then scratch memory.
    """
    dtype, wide = str(x.dtype), "float64"
    rows, given, parts = x.shape[0], x.shape[1], int(x.shape[2])
    n = index(length)
    outputs = transform.outputs(n)
    real = transform.is_real

    def read(data: Any, row: Any, place: Any, part: int) -> Any:
        """Return one part of an input number, zero where it is missing."""
        if part >= parts:
            return tirx.const(0.0, dtype)
        if not real:
            return tirx.if_then_else(place < given, data[row, place, part], tirx.const(0.0, dtype))
        mirrored = place > tirx.floordiv(n, 2)
        source = tirx.Select(mirrored, n - place, place)
        value = tirx.if_then_else(source < given, data[row, source, part], tirx.const(0.0, dtype))
        if part == 0:
            return value
        middle = tirx.any(place == 0, place * 2 == n)  # real by symmetry
        signed = tirx.Select(mirrored, -value, value)
        return tirx.Select(middle, tirx.const(0.0, dtype), signed)

    def body(ins: list[Any], outs: list[Any]) -> None:
        result, work, root = outs
        sign = 1.0 if transform.inverse else -1.0
        with parallel(n) as k:
            angle = as_dtype(k, "float64") * (2 * math.pi) / as_dtype(n, "float64")
            root[k, 0] = tirx.cos(angle)
            root[k, 1] = tirx.sin(angle) * sign
        with parallel(rows) as row:
            with serial(n) as k:
                for part in range(2):
                    work[row, 0, k, part] = read(ins[0], row, k, part).astype(wide)
            left, stride, side = Scalar(n), Scalar(1), Scalar(0)
            with T.While(left() > 1):
                radix = Scalar(2)
                with T.While(tirx.floormod(left(), radix()) != 0):
                    radix.set(radix() + 1)
                    with when(radix() * radix() > left()):
                        radix.set(left())
                rest = Scalar(tirx.floordiv(left(), radix()))
                with serial(rest()) as p, serial(radix()) as j, serial(stride()) as q:
                    sums = [Scalar(0.0, wide), Scalar(0.0, wide)]
                    with serial(radix()) as k:
                        turn = Scalar(tirx.floormod(j * (p + rest() * k), left()) * stride())
                        source = Scalar(q + stride() * (p + rest() * k))
                        re, im = (
                            Scalar(work[row, side(), source(), part], wide) for part in (0, 1)
                        )
                        c, s = (Scalar(root[turn(), part], wide) for part in (0, 1))
                        sums[0].set(sums[0]() + (re() * c() - im() * s()))
                        sums[1].set(sums[1]() + (re() * s() + im() * c()))
                    for part in range(2):
                        work[row, 1 - side(), q + stride() * (radix() * p + j), part] = sums[part]()
                left.set(rest())
                stride.set(stride() * radix())
                side.set(1 - side())
            with serial(outputs) as k:
                for part in range(1 if real else 2):
                    value = work[row, side(), k, part]
                    if transform.inverse:
                        value = value / as_dtype(n, wide)
                    result[row, k, part] = value.astype(dtype)

    shapes = [
        ((rows, outputs, 1 if real else 2), dtype),
        ((rows, 2, n, 2), wide),
        ((n, 2), wide),
    ]
    return kernel([x], shapes, body, "fast_fourier_transform")


def sizes_along(
    axis: te.Tensor, dims: Sequence[Any], transform: Transform, length: Any = None
) -> te.Tensor:
    """Return the sizes of a transform along an axis known only at run time.

    Args:
        axis: int (1,); negative values count from behind the axis of the parts.
        dims: The sizes of the input, without that axis.
        transform: Which.
        length: Of the transform; None takes it from the input.

    Returns:
        int64: the products of the sizes before the axis, along it and after it, the length, and
        then the sizes of the result.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        place = Scalar(ins[0][index(0)])
        with when(place() < 0):
            place.set(place() + len(dims) + 1)
        outer, given, inner = Scalar(1), Scalar(1), Scalar(1)
        for number, dim in enumerate(dims):
            with when(place() > number):
                outer.set(outer() * index(dim))
            with when(place() == number):
                given.set(index(dim))
            with when(place() < number):
                inner.set(inner() * index(dim))
        if length is not None:
            own = Scalar(index(length))
        else:
            own = Scalar((given() - 1) * 2 if transform.is_real else given())
        for number, value in enumerate((outer, given, inner, own)):
            outs[0][index(number)] = value()
        for number, dim in enumerate(dims):
            along = transform.outputs(own())
            outs[0][index(4 + number)] = tirx.Select(place() == number, along, index(dim))

    return kernel([axis], [((4 + len(dims),), "int64")], body, "sizes_along")[0]


def frames(
    signal: te.Tensor, window: te.Tensor | None, count: Any, step: Any, length: Any
) -> te.Tensor:
    """Return overlapping pieces of a signal, weighted by a window.

    Args:
        signal: (n, samples, parts).
        window: (length,) of the dtype of `signal`, or None.
        count: How many pieces; all lie inside the signal.
        step: From one piece to the next.
        length: Of a piece.

    Returns:
        (n, count, length, parts).
    """

    def element(n: Any, frame: Any, k: Any, part: Any) -> Any:
        value = signal(n, frame * index(step) + k, part)
        return value if window is None else value * window(k)

    shape = [signal.shape[0], index(count), index(length), signal.shape[2]]
    return te.compute(shape, element, name="frames")
