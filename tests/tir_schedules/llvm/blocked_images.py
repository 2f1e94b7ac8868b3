"""Blocked images and kernels, and direct NumPy convolution and pooling in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RNG = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    """Return normal float32 values."""
    return RNG.standard_normal(shape).astype("float32")


def block(image: np.ndarray, size: int) -> np.ndarray:
    """Turn NCHW into N, C/size, H, W, size."""
    n, c, h, w = image.shape
    return np.ascontiguousarray(image.reshape(n, c // size, size, h, w).transpose(0, 1, 3, 4, 2))


def block_kernel(weight: np.ndarray, ib: int, ob: int) -> np.ndarray:
    """Turn OIHW into O/ob, I/ib, kh, kw, ib, ob."""
    o, i, kh, kw = weight.shape
    tiles = weight.reshape(o // ob, ob, i // ib, ib, kh, kw)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 5, 3, 1))


def windows(
    image: np.ndarray,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    out: tuple[int, int],
    fill: float,
) -> np.ndarray:
    """Return the pixels each window reads, shape (N, C, OH, OW, kh, kw); outside is `fill`."""
    n, c, h, w = image.shape
    top, left = padding[:2]
    result = np.full((n, c, *out, *kernel), fill, "float64")
    for y, x, ky, kx in np.ndindex(*out, *kernel):
        row = y * strides[0] + ky * dilation[0] - top
        col = x * strides[1] + kx * dilation[1] - left
        if 0 <= row < h and 0 <= col < w:
            result[:, :, y, x, ky, kx] = image[:, :, row, col]
    return result


def convolve(
    image: np.ndarray,
    weight: np.ndarray,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """Convolve NCHW with OIHW in float64."""
    _, _, h, w = image.shape
    o, i, kh, kw = weight.shape
    top, left, bottom, right = padding
    oh = (h + top + bottom - (kh - 1) * dilation[0] - 1) // strides[0] + 1
    ow = (w + left + right - (kw - 1) * dilation[1] - 1) // strides[1] + 1
    seen = windows(image, (kh, kw), strides, padding, dilation, (oh, ow), 0.0)
    per_group = o // groups
    parts = [
        np.einsum(
            "nchwyx,ocyx->nohw",
            seen[:, g * i : (g + 1) * i],
            weight[g * per_group : (g + 1) * per_group].astype("float64"),
            optimize=True,
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, axis=1)


def pool(
    reduce: Callable[..., np.ndarray], image: np.ndarray, out: tuple[int, int], **window: object
) -> np.ndarray:
    """Reduce each window of an NCHW image with a NumPy reduction."""
    return reduce(windows(image, out=out, **window), axis=(-2, -1))  # type: ignore[arg-type]
