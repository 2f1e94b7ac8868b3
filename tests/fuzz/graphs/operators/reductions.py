"""Reductions over axes, argmax, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.operators.unary import FLOATS
from tests.fuzz.graphs.recipe import Attributes, TensorType
from tests.fuzz.graphs.sizes import Size

op = relax.op
Proposal = tuple[Sequence[int], dict[str, Any]] | None
LONGEST = 64  # what a symbolic size is taken to be at most, for bounds


@dataclass(frozen=True)
class _Reduction:
    relax: Callable[..., Any]
    numpy: Callable[..., np.ndarray]
    onnx: str
    dtypes: tuple[str, ...]
    empty: bool = False  # has an identity, so an axis may be empty
    sums: bool = False
    weight: float = 1.0


_REDUCTIONS = {
    "sum": _Reduction(op.sum, np.sum, "ReduceSum", (*FLOATS, "int32", "int64"), True, True, 2),
    "mean": _Reduction(op.mean, np.mean, "ReduceMean", FLOATS, weight=2),
    "max": _Reduction(op.max, np.max, "ReduceMax", (*FLOATS, "int32")),
    "min": _Reduction(op.min, np.min, "ReduceMin", (*FLOATS, "int32")),
}


def reduced_count(kind: TensorType, axes: Sequence[int]) -> int:
    """Return how many elements a result takes in, at most."""
    count = 1
    for axis in axes:
        size = kind.shape[axis]
        count *= size if isinstance(size, int) else LONGEST
    return count


def reduced_shape(kind: TensorType, axes: Sequence[int], keep: bool) -> tuple[Size, ...]:
    """Return the shape of a reduction's result."""
    return tuple(1 if a in axes else s for a, s in enumerate(kind.shape) if keep or a not in axes)


def _add(name: str, one: _Reduction) -> None:
    def infer(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
        (kind,), axes = types, attrs["axes"]
        if not is_tensor(kind, *one.dtypes) or max(axes, default=0) >= len(kind.shape):
            return None
        if not one.empty and any(kind.shape[a] == 0 for a in axes):
            return None
        count = reduced_count(kind, axes) if one.sums else 1
        low, high = kind.low * count, kind.high * count
        if one.sums:
            low, high = min(low, 0.0), max(high, 0.0)
        exact = kind.exact and not one.sums and name != "mean"
        shape = reduced_shape(kind, axes, attrs["keep"])
        return kind.like(shape=shape, low=low, high=high, exact=exact or not kind.is_float)

    def propose(draw: Draw) -> Proposal:
        x = draw.pick(lambda t: t.dtype in one.dtypes and len(t.shape) > 0)
        if x is None:
            return None
        kind = draw.type(x)
        legal = [a for a, s in enumerate(kind.shape) if one.empty or not draw.may_be_zero(s)]
        if not legal:
            return None
        axes = draw.rng.sample(legal, min(len(legal), draw.rng.choice([1, 1, 2, 4])))
        return [x], {"axes": tuple(sorted(axes)), "keep": draw.rng.random() < 0.5}

    def numpy(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
        result = one.numpy(args[0], axis=attrs["axes"], keepdims=attrs["keep"])
        return np.asarray(result, args[0].dtype)

    add(
        name,
        Operator(
            infer,
            lambda sizes, args, attrs: one.relax(args[0], list(attrs["axes"]), attrs["keep"]),
            numpy,
            propose,
            lambda g, names, step, types: g.node(
                one.onnx,
                [*names, g.constant(np.array(step.attrs["axes"], "int64"))],
                keepdims=int(step.attrs["keep"]),
            ),
            one.weight,
        ),
    )


for _name, _one in _REDUCTIONS.items():
    _add(_name, _one)


# argmax -------------------------------------------------------------------------------------------


def _infer_argmax(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axis = types, attrs["axis"]
    if not is_tensor(kind, "float32", "int32") or not kind.exact or axis >= len(kind.shape):
        return None
    size = kind.shape[axis]
    if size == 0:
        return None
    last = float((size if isinstance(size, int) else LONGEST) - 1)
    return TensorType(reduced_shape(kind, [axis], attrs["keep"]), "int64", 0.0, last, True)


def _propose_argmax(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: is_tensor(t, "float32", "int32") and t.exact and len(t.shape) > 0)
    if x is None:
        return None
    axis = draw.rng.randrange(len(draw.type(x).shape))
    if draw.may_be_zero(draw.type(x).shape[axis]):
        return None
    return [x], {"axis": axis, "keep": draw.rng.random() < 0.5}


def _numpy_argmax(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    found = np.argmax(args[0], attrs["axis"], keepdims=attrs["keep"])
    return np.asarray(found, "int64")


add(
    "argmax",
    Operator(
        _infer_argmax,
        lambda sizes, args, attrs: op.argmax(args[0], attrs["axis"], attrs["keep"]),
        _numpy_argmax,
        _propose_argmax,
        lambda g, names, step, types: g.node(
            "ArgMax", names, axis=step.attrs["axis"], keepdims=int(step.attrs["keep"])
        ),
    ),
)


# cumulative sum -----------------------------------------------------------------------------------


def _infer_cumsum(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axis = types, attrs["axis"]
    if not is_tensor(kind, "float32", "int32", "int64") or axis >= len(kind.shape):
        return None
    count = reduced_count(kind, [axis])
    return kind.like(low=min(kind.low * count, kind.low), high=max(kind.high * count, kind.high))


def _propose_cumsum(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: is_tensor(t, "float32", "int32", "int64") and len(t.shape) > 0)
    if x is None or any(draw.may_be_zero(s) for s in draw.type(x).shape):
        return None
    return [x], {"axis": draw.rng.randrange(len(draw.type(x).shape))}


add(
    "cumsum",
    Operator(
        _infer_cumsum,
        lambda sizes, args, attrs: op.cumsum(args[0], attrs["axis"]),
        lambda sizes, args, attrs: np.cumsum(args[0], attrs["axis"], dtype=args[0].dtype),
        _propose_cumsum,
        lambda g, names, step, types: g.node(
            "CumSum", [*names, g.constant(np.array(step.attrs["axis"], "int64"))]
        ),
        weight=0.5,
    ),
)
