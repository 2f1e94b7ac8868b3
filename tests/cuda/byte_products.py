"""Products of 8-bit integers as TIR functions, with the NumPy that says what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx, topi
from tvm.tirx import PrimFunc

from tests.cuda.products import convolved
from tir_schedules.cuda.byte_product import byte_product
from tir_schedules.cuda.conv2d import conv2d_channels_last

Types = tuple[str, str]


@dataclass(frozen=True)
class ByteCase:
    """A function of integers, the shapes of its inputs and result, and its exact value.

    `sizes` are those of its symbolic dimensions, by name.
    """

    func: PrimFunc
    shapes: list[tuple[int, ...]]
    types: list[str]
    result: tuple[int, ...]
    expected: Callable[..., np.ndarray]
    sizes: dict[str, int]
    out_type: str = "int32"

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """Return random inputs: bytes of all values, biases that overflow nothing."""
        random = np.random.default_rng(seed)
        limits = {"int8": (-128, 128), "uint8": (0, 256), "int32": (-(2**20), 2**20)}
        pairs = zip(self.shapes, self.types, strict=True)
        return [random.integers(*limits[t], shape, t) for shape, t in pairs]


def byte_matmul(
    rows: int,
    columns: int,
    steps: int,
    *,
    types: Types = ("uint8", "int8"),
    batch: int | None = None,
    by_columns: bool = True,
    requantized: bool = False,
    symbolic: bool = False,
) -> ByteCase:
    """Return A B in int32, or `A B + bias` scaled and saturated to uint8 where `requantized`.

    Args:
        rows: Of A.
        columns: Of B.
        steps: Columns of A and rows of B.
        types: Of A and B.
        batch: How many products, None for one without an axis for it.
        by_columns: Whether B is given transposed.
        requantized: Whether the sums become bytes again.
        symbolic: Whether the function takes any number of rows.
    """
    lead = [] if batch is None else [batch]
    m = te.var("m", "int64") if symbolic else rows
    right = [columns, steps] if by_columns else [*lead, steps, columns]
    shapes = [(*lead, rows, steps), tuple(right)]
    a = te.placeholder([*lead, m, steps], types[0], "a")
    b = te.placeholder(right, types[1], "b")
    result, given, kinds = byte_product(a, b, by_columns), [a, b], list(types)
    if requantized:
        bias = te.placeholder((columns,), "int32", "bias")
        scaled = topi.cast(topi.add(result, bias), "float32") * tirx.const(2.0**-10, "float32")
        result = topi.cast(topi.round(topi.clip(scaled, 0, 255)), "uint8")
        given, kinds, shapes = [*given, bias], [*kinds, "int32"], [*shapes, (columns,)]

    def expected(x: np.ndarray, y: np.ndarray, *more: np.ndarray) -> np.ndarray:
        y = y.T if by_columns else y
        total = x.astype("int32") @ y.astype("int32")
        if not more:
            return total
        scaled = (total + more[0]).astype("float32") * np.float32(2.0**-10)
        return np.rint(scaled.clip(0, 255)).astype("uint8")

    sizes = {"m": rows} if symbolic else {}
    func = te.create_prim_func([*given, result])
    out_type = "uint8" if requantized else "int32"
    return ByteCase(func, shapes, kinds, (*lead, rows, columns), expected, sizes, out_type)


def byte_convolution(
    size: int,
    channels: int,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    channels_first: bool = False,
    types: Types = ("uint8", "int8"),
) -> ByteCase:
    """Return a padded convolution of two images, NHWC or NCHW, by a kernel stored by columns."""
    pad = kernel // 2
    layout = "OIHW" if channels_first else "OHWI"
    sides = dict(zip("OIHW", (out, channels // groups, kernel, kernel), strict=True))
    shapes = [(2, size, size, channels), tuple(sides[axis] for axis in layout)]
    if channels_first:
        shapes[0] = (2, channels, size, size)
    tensors = [
        te.placeholder([tirx.const(dim, "int64") for dim in shape], dtype, name)
        for shape, dtype, name in zip(shapes, types, "xw", strict=True)
    ]
    result = conv2d_channels_last(
        *tensors,
        strides=(stride, stride),
        padding=(pad, pad, pad, pad),
        dilation=(1, 1),
        groups=groups,
        channels_first=channels_first,
        out_dtype="int32",
        kernel_layout=layout,
    )

    def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x = (x.transpose(0, 2, 3, 1) if channels_first else x).astype("int32")
        taps = w.astype("int32").transpose([layout.index(axis) for axis in "HWIO"])
        return convolved(x, taps, stride, groups)

    side = (size + 2 * pad - kernel) // stride + 1
    func = te.create_prim_func([*tensors, result])
    return ByteCase(func, shapes, list(types), (2, side, side, out), expected, {})
