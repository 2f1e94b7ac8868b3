"""Pooling over windows, and global average pooling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.operators.products import window_size
from tests.fuzz.graphs.recipe import Attributes, TensorType

nn = relax.op.nn
Proposal = tuple[Sequence[int], dict[str, Any]] | None


def _is_image(kind: TensorType) -> bool:
    positive = all(not isinstance(s, int) or s > 0 for s in kind.shape)
    return kind.dtype == "float32" and len(kind.shape) == 4 and positive


def _infer_pool(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,) = types
    if not is_tensor(kind) or not _is_image(kind):
        return None
    spatial = [window_size(s, attrs["kernel"], {**attrs, "dilation": 1}) for s in kind.shape[2:]]
    if any(s is None or (isinstance(s, int) and s < 1) for s in spatial):
        return None
    low, high = min(kind.low, 0.0), max(kind.high, 0.0)
    exact = kind.exact and attrs["mode"] == "max"
    return kind.like(shape=(*kind.shape[:2], *spatial), low=low, high=high, exact=exact)


def _propose_pool(draw: Draw) -> Proposal:
    x = draw.pick(_is_image)
    if x is None:
        return None
    kernel = draw.rng.choice([2, 2, 3])
    return [x], {
        "mode": draw.rng.choice(["max", "avg"]),
        "kernel": kernel,
        "stride": draw.rng.choice([1, 2, 2]),
        "padding": draw.rng.choice([0, 0, 1]),
        "count_include_pad": draw.rng.random() < 0.5,
    }


def _relax_pool(sizes: Any, args: Sequence[Any], attrs: Attributes) -> Any:
    kernel, stride, padding = ([attrs[key]] * 2 for key in ("kernel", "stride", "padding"))
    if attrs["mode"] == "max":
        return nn.max_pool2d(args[0], kernel, stride, padding)
    return nn.avg_pool2d(
        args[0], kernel, stride, padding, count_include_pad=attrs["count_include_pad"]
    )


def _numpy_pool(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    (x,), kernel, stride, padding = args, attrs["kernel"], attrs["stride"], attrs["padding"]
    border = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    is_max = attrs["mode"] == "max"
    padded = np.pad(x, border, constant_values=-np.inf if is_max else 0.0)
    counted = np.pad(np.ones_like(x), border, constant_values=float(attrs["count_include_pad"]))
    rows, columns = ((s - kernel) // stride + 1 for s in padded.shape[2:])
    parts, counts = [], []
    for i, j in product(range(kernel), repeat=2):
        cut = np.s_[
            :,
            :,
            i : i + (rows - 1) * stride + 1 : stride,
            j : j + (columns - 1) * stride + 1 : stride,
        ]
        parts.append(padded[cut])
        counts.append(counted[cut])
    return np.max(parts, axis=0) if is_max else np.sum(parts, axis=0) / np.sum(counts, axis=0)


def _onnx_pool(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    attrs = step.attrs
    shared = {
        "kernel_shape": [attrs["kernel"]] * 2,
        "strides": [attrs["stride"]] * 2,
        "pads": [attrs["padding"]] * 4,
    }
    if attrs["mode"] == "max":
        return g.node("MaxPool", names, **shared)
    count = int(attrs["count_include_pad"])
    return g.node("AveragePool", names, count_include_pad=count, **shared)


add("pool", Operator(_infer_pool, _relax_pool, _numpy_pool, _propose_pool, _onnx_pool, 2))


def _infer_global(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,) = types
    if not is_tensor(kind) or not _is_image(kind):
        return None
    return kind.like(shape=(*kind.shape[:2], 1, 1))


def _propose_global(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: _is_image(t) and not any(draw.may_be_zero(s) for s in t.shape[2:]))
    return None if x is None else ([x], {})


add(
    "global_avg_pool",
    Operator(
        _infer_global,
        lambda sizes, args, attrs: nn.adaptive_avg_pool2d(args[0], (1, 1)),
        lambda sizes, args, attrs: args[0].mean((2, 3), keepdims=True),
        _propose_global,
        lambda g, names, step, types: g.node("GlobalAveragePool", names),
    ),
)
