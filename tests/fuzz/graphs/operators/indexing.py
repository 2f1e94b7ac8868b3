"""Concat, split, pad, gather, tile: operators that move whole parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.recipe import Attributes, TensorType
from tests.fuzz.graphs.sizes import Shape, Size, plus, times

op = relax.op
Proposal = tuple[Sequence[int], dict[str, Any]] | None


def with_size(shape: Shape, axis: int, size: Size) -> Shape:
    """Return the shape with one size replaced."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def _infer_concat(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    first, axis = types[0], attrs["axis"]
    if not all(is_tensor(t, first.dtype) for t in types) or axis >= len(first.shape):
        return None
    total: Size | None = 0
    for kind in types:
        if len(kind.shape) != len(first.shape):
            return None
        if with_size(kind.shape, axis, 0) != with_size(first.shape, axis, 0):
            return None
        total = None if total is None else plus(total, kind.shape[axis])
    if total is None:
        return None
    low, high = min(t.low for t in types), max(t.high for t in types)
    exact = all(t.exact for t in types)
    return TensorType(with_size(first.shape, axis, total), first.dtype, low, high, exact)


def _propose_concat(draw: Draw) -> Proposal:
    first = draw.pick(lambda t: len(t.shape) > 0)
    if first is None:
        return None
    kind = draw.type(first)
    axis = draw.rng.randrange(len(kind.shape))

    def fits(t: TensorType) -> bool:
        return _infer_concat([kind, t], {"axis": axis}) is not None

    parts = [first]
    for _ in range(draw.rng.choice([1, 1, 2])):
        other = draw.pick(lambda t: t.dtype == kind.dtype and fits(t))
        parts.append(first if other is None else other)
    if draw.rng.random() < 0.2 and all(isinstance(s, int) for s in kind.shape):
        parts.append(draw.constant(with_size(kind.shape, axis, 1), kind.dtype))  # type: ignore
    return parts, {"axis": axis}


add(
    "concat",
    Operator(
        _infer_concat,
        lambda sizes, args, attrs: op.concat(list(args), attrs["axis"]),
        lambda sizes, args, attrs: np.concatenate(args, attrs["axis"]),
        _propose_concat,
        lambda g, names, step, types: g.node("Concat", names, axis=step.attrs["axis"]),
        weight=4,
    ),
)


def _infer_split(types: Sequence[Any], attrs: Attributes) -> tuple[TensorType, ...] | None:
    (kind,), axis, cuts = types, attrs["axis"], attrs["cuts"]
    if not is_tensor(kind) or axis >= len(kind.shape) or not isinstance(kind.shape[axis], int):
        return None
    if list(cuts) != sorted(cuts) or cuts[-1] > kind.shape[axis]:
        return None
    ends = (0, *cuts, kind.shape[axis])
    return tuple(
        kind.like(shape=with_size(kind.shape, axis, b - a), exact=kind.exact)
        for a, b in zip(ends, ends[1:], strict=False)
    )


def _propose_split(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: any(isinstance(s, int) and s > 1 for s in t.shape))
    if x is None:
        return None
    shape = draw.type(x).shape
    axis = draw.rng.choice([a for a, s in enumerate(shape) if isinstance(s, int) and s > 1])
    size = int(shape[axis])  # type: ignore[arg-type]
    cuts = {draw.rng.randrange(1, size) for _ in range(draw.rng.choice([1, 1, 2]))}
    return [x], {"axis": axis, "cuts": tuple(sorted(cuts))}


def _onnx_split(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    axis = step.attrs["axis"]
    parts = np.array([t.shape[axis] for t in step.type], "int64")
    return g.node("Split", [*names, g.constant(parts)], outputs=len(parts), axis=axis)


add(
    "split",
    Operator(
        _infer_split,
        lambda sizes, args, attrs: op.split(args[0], list(attrs["cuts"]), attrs["axis"]),
        lambda sizes, args, attrs: tuple(np.split(args[0], attrs["cuts"], attrs["axis"])),
        _propose_split,
        _onnx_split,
        weight=3,
    ),
)


def _infer_pad(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), widths, value = types, attrs["widths"], attrs["value"]
    if not is_tensor(kind, "float32", "float64") or len(widths) != len(kind.shape):
        return None
    shape = tuple(plus(s, sum(w)) for s, w in zip(kind.shape, widths, strict=True))
    low, high = min(kind.low, value), max(kind.high, value)
    return kind.like(shape=shape, low=low, high=high, exact=kind.exact)


def _propose_pad(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: t.dtype in ("float32", "float64") and len(t.shape) > 0)
    if x is None:
        return None
    rank = len(draw.type(x).shape)
    widths = [(0, 0)] * rank
    for axis in draw.rng.sample(range(rank), min(rank, draw.rng.choice([1, 2]))):
        widths[axis] = (draw.rng.randrange(3), draw.rng.randrange(2))
    return [x], {"widths": tuple(widths), "value": draw.rng.choice([0.0, 0.0, 1.5])}


def _relax_pad(sizes: Any, args: Sequence[Any], attrs: Attributes) -> Any:
    flat = [width for pair in attrs["widths"] for width in pair]
    return op.nn.pad(args[0], flat, "constant", attrs["value"])


def _onnx_pad(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    before, after = zip(*step.attrs["widths"], strict=True)
    value = g.constant(np.array(step.attrs["value"], types[0].dtype))
    return g.node("Pad", [*names, g.constant(np.array([*before, *after], "int64")), value])


add(
    "pad",
    Operator(
        _infer_pad,
        _relax_pad,
        lambda sizes, args, attrs: np.pad(args[0], attrs["widths"], constant_values=attrs["value"]),
        _propose_pad,
        _onnx_pad,
        weight=2,
    ),
)


def _infer_take(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    kind, indices = types
    axis = attrs["axis"]
    if not is_tensor(kind) or not is_tensor(indices, "int64", "int32"):
        return None
    if axis >= len(kind.shape) or not isinstance(kind.shape[axis], int):
        return None
    if indices.low < 0 or indices.high >= kind.shape[axis]:
        return None
    shape = (*kind.shape[:axis], *indices.shape, *kind.shape[axis + 1 :])
    return kind.like(shape=shape, exact=kind.exact)


def _propose_take(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: any(isinstance(s, int) and s > 0 for s in t.shape))
    if x is None:
        return None
    shape = draw.type(x).shape
    axis = draw.rng.choice([a for a, s in enumerate(shape) if isinstance(s, int) and s > 0])
    own = draw.rng.choice([(), (3,), (1,), (2, 2)])
    last = float(shape[axis]) - 1  # type: ignore[arg-type]
    return [x, draw.constant(own, "int64", 0.0, last)], {"axis": axis}


add(
    "take",
    Operator(
        _infer_take,
        lambda sizes, args, attrs: op.take(args[0], args[1], attrs["axis"], mode="fast"),
        lambda sizes, args, attrs: np.take(args[0], args[1], attrs["axis"]),
        _propose_take,
        lambda g, names, step, types: g.node("Gather", names, axis=step.attrs["axis"]),
        weight=2,
    ),
)


def _infer_tile(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), repeats = types, attrs["repeats"]
    if not is_tensor(kind) or len(repeats) != len(kind.shape):
        return None
    shape = tuple(times(s, r) for s, r in zip(kind.shape, repeats, strict=True))
    return kind.like(shape=shape, exact=kind.exact)


def _propose_tile(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: 0 < len(t.shape) <= 3)
    if x is None:
        return None
    return [x], {"repeats": tuple(draw.rng.choice([1, 2]) for _ in draw.type(x).shape)}


add(
    "tile",
    Operator(
        _infer_tile,
        lambda sizes, args, attrs: op.tile(args[0], list(attrs["repeats"])),
        lambda sizes, args, attrs: np.tile(args[0], attrs["repeats"]),
        _propose_tile,
        lambda g, names, step, types: g.node(
            "Tile", [*names, g.constant(np.array(step.attrs["repeats"], "int64"))]
        ),
        weight=0.7,
    ),
)
