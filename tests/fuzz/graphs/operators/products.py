"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.operators.reductions import LONGEST
from tests.fuzz.graphs.recipe import Attributes, TensorType
from tests.fuzz.graphs.sizes import Affine, Shape, Size, broadcast, plus

op, nn = relax.op, relax.op.nn
Proposal = tuple[Sequence[int], dict[str, Any]] | None
_PRODUCT_DTYPES = ("float32", "float16", "float64", "int32")


def _infer_matmul(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    a, b = types
    if not is_tensor(a, *_PRODUCT_DTYPES) or not is_tensor(b, a.dtype):
        return None
    if not a.shape or not b.shape or a.shape[-1] != b.shape[max(len(b.shape) - 2, 0)]:
        return None
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        return None
    shape = batch + a.shape[-2:-1] + (b.shape[-1:] if len(b.shape) > 1 else ())
    depth = a.shape[-1]
    bound = (depth if isinstance(depth, int) else LONGEST) * a.bound * b.bound
    return TensorType(shape, a.dtype, -bound, bound, not a.is_float)


def _propose_matmul(draw: Draw) -> Proposal:
    a = draw.pick(lambda t: t.dtype in _PRODUCT_DTYPES and len(t.shape) > 0)
    if a is None:
        return None
    kind = draw.type(a)
    if draw.rng.random() < 0.25:
        b = draw.pick(lambda t: _infer_matmul([kind, t], {}) is not None)
        if b is not None:
            return [a, b], {}
    if not isinstance(kind.shape[-1], int):
        return None
    batch: Shape = ()
    if draw.rng.random() < 0.25:
        batch = tuple(s if draw.rng.random() < 0.7 else 1 for s in kind.shape[:-2])
    columns = draw.rng.choice([1, 3, 4, 8, 16])
    own = (*batch, kind.shape[-1], columns) if draw.rng.random() < 0.95 else kind.shape[-1:]
    return [a, draw.weight(own, kind.dtype, 1.0)], {}


add(
    "matmul",
    Operator(
        _infer_matmul,
        lambda sizes, args, attrs: op.matmul(*args),
        lambda sizes, args, attrs: np.matmul(*args),
        _propose_matmul,
        lambda g, names, step, types: g.node("MatMul", names),
        weight=4,
    ),
)


# Convolution --------------------------------------------------------------------------------------


def window_size(size: Size, kernel: int, attrs: Attributes) -> Size | None:
    """Return the output size of a convolution or pooling along one axis.

    None if the window is larger than the padded axis, or may be where the size is a symbol. No
    symbol is less than 1, so a size is at least 1 if its offset is not negative.
    """
    reach = (kernel - 1) * attrs["dilation"] + 1
    if not isinstance(size, int):
        out = plus(size, 2 * attrs["padding"] - reach + 1) if attrs["stride"] == 1 else None
        return out if isinstance(out, Affine) and out.offset >= 0 else None
    span = size + 2 * attrs["padding"] - reach
    return span // attrs["stride"] + 1 if span >= 0 and size > 0 else None


def _infer_conv(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    x, w = types
    if not is_tensor(x, "float32", "float16") or not is_tensor(w, x.dtype):
        return None
    if len(x.shape) not in (3, 4) or len(w.shape) != len(x.shape):
        return None
    if not all(isinstance(s, int) for s in (x.shape[1], *w.shape)):
        return None
    if w.shape[1] * attrs["groups"] != x.shape[1] or w.shape[0] % attrs["groups"]:
        return None
    spatial = [window_size(s, k, attrs) for s, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    if any(s is None or (isinstance(s, int) and s < 1) for s in spatial):
        return None
    bound = float(np.prod(w.shape[1:])) * x.bound * w.bound
    return TensorType((x.shape[0], w.shape[0], *spatial), x.dtype, -bound, bound)  # type: ignore


def _propose_conv(draw: Draw) -> Proposal:
    x = draw.pick(
        lambda t: t.dtype in ("float32", "float16") and len(t.shape) in (3, 4)
        and isinstance(t.shape[1], int)
        and t.shape[1] > 0
    )  # fmt: skip
    if x is None:
        return None
    kind = draw.type(x)
    channels = int(kind.shape[1])
    groups = draw.rng.choice([g for g in (1, 1, 1, 2, 4, channels) if channels % g == 0])
    out = groups * draw.rng.choice([1, 1, 2, 4]) if groups > 1 else draw.rng.choice([1, 3, 4, 8])
    kernel = draw.rng.choice([1, 1, 3, 3, 2])
    attrs = {
        "groups": groups,
        "stride": draw.rng.choice([1, 1, 2]),
        "dilation": draw.rng.choice([1, 1, 1, 2]),
        "padding": draw.rng.choice([0, kernel // 2]),
    }
    shape = (out, channels // groups, *([kernel] * (len(kind.shape) - 2)))
    return [x, draw.weight(shape, kind.dtype, 0.5)], attrs


def _relax_conv(sizes: Any, args: Sequence[Any], attrs: Attributes) -> Any:
    build = nn.conv2d if args[0].ty.ndim == 4 else nn.conv1d
    return build(
        *args,
        strides=attrs["stride"],
        padding=attrs["padding"],
        dilation=attrs["dilation"],
        groups=attrs["groups"],
    )


def _numpy_conv(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    x, w = args
    groups, stride, step = attrs["groups"], attrs["stride"], attrs["dilation"]
    x = np.pad(x, [(0, 0)] * 2 + [(attrs["padding"],) * 2] * (x.ndim - 2))
    spatial = [
        (s - (k - 1) * step - 1) // stride + 1
        for s, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = w.reshape(groups, -1, *w.shape[1:])
    total = np.zeros((x.shape[0], groups, w.shape[1], *spatial))
    for at in product(*(range(k) for k in w.shape[3:])):
        cut = tuple(
            slice(k * step, k * step + (n - 1) * stride + 1, stride)
            for k, n in zip(at, spatial, strict=True)
        )
        part = x[(slice(None),) * 3 + cut]
        total += np.einsum("ngc...,goc->ngo...", part, w[(slice(None),) * 3 + at])
    return total.reshape(x.shape[0], groups * w.shape[1], *spatial)


def _onnx_conv(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    rank = len(types[0].shape) - 2
    return g.node(
        "Conv",
        names,
        group=step.attrs["groups"],
        strides=[step.attrs["stride"]] * rank,
        dilations=[step.attrs["dilation"]] * rank,
        pads=[step.attrs["padding"]] * 2 * rank,
    )


add("conv", Operator(_infer_conv, _relax_conv, _numpy_conv, _propose_conv, _onnx_conv, 4))


# Transposed convolution ---------------------------------------------------------------------------


def _infer_transposed(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    x, w = types
    if not is_tensor(x, "float32") or not is_tensor(w, "float32") or len(x.shape) != 4:
        return None
    if not all(isinstance(s, int) and s > 0 for s in (*x.shape, *w.shape)) or len(w.shape) != 4:
        return None
    groups = attrs["groups"]
    if w.shape[0] != x.shape[1] or x.shape[1] % groups:
        return None
    spatial = [
        (s - 1) * attrs["stride"] - 2 * attrs["padding"] + k
        for s, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    if min(spatial) < 1:
        return None
    bound = float(np.prod(w.shape)) / w.shape[1] / groups * x.bound * w.bound
    return TensorType((x.shape[0], w.shape[1] * groups, *spatial), "float32", -bound, bound)


def _propose_transposed(draw: Draw) -> Proposal:
    x = draw.pick(
        lambda t: t.dtype == "float32" and len(t.shape) == 4
        and all(isinstance(s, int) and s > 0 for s in t.shape)
    )  # fmt: skip
    if x is None:
        return None
    channels = int(draw.type(x).shape[1])
    kernel = draw.rng.choice([1, 2, 3])
    attrs = {
        "groups": draw.rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0]),
        "stride": draw.rng.choice([1, 2, 2, 3]),
        "padding": draw.rng.choice([0, kernel // 2]),
    }
    return [
        x,
        draw.weight((channels, draw.rng.choice([1, 3, 4]), kernel, kernel), "float32"),
    ], attrs


def _numpy_transposed(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    x, w = args
    groups, stride, padding = attrs["groups"], attrs["stride"], attrs["padding"]
    n, _, height, width = x.shape
    x = x.reshape(n, groups, -1, height, width)
    w = w.reshape(groups, -1, *w.shape[1:])
    kernel = w.shape[3]
    full = np.zeros(
        (n, groups, w.shape[2], (height - 1) * stride + kernel, (width - 1) * stride + kernel)
    )
    for i, j in product(range(kernel), repeat=2):
        part = np.einsum("ngchw,gco->ngohw", x, w[:, :, :, i, j])
        rows = slice(i, i + (height - 1) * stride + 1, stride)
        columns = slice(j, j + (width - 1) * stride + 1, stride)
        full[:, :, :, rows, columns] += part
    cut = slice(padding, -padding or None)
    return full[:, :, :, cut, cut].reshape(n, -1, *full[0, 0, 0, cut, cut].shape)


add(
    "conv_transpose",
    Operator(
        _infer_transposed,
        lambda sizes, args, attrs: nn.conv2d_transpose(
            *args, strides=attrs["stride"], padding=attrs["padding"], groups=attrs["groups"]
        ),
        _numpy_transposed,
        _propose_transposed,
        lambda g, names, step, types: g.node(
            "ConvTranspose",
            names,
            group=step.attrs["groups"],
            strides=[step.attrs["stride"]] * 2,
            pads=[step.attrs["padding"]] * 4,
        ),
        weight=1.0,
    ),
)
