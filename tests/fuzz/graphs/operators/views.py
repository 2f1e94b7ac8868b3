"""Reshape, expand_dims, squeeze, permute_dims, slices, broadcasts: the same elements elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.recipe import Attributes, TensorType
from tests.fuzz.graphs.sizes import Affine, Shape, Size, product, times

op = relax.op
Proposal = tuple[Sequence[int], dict[str, Any]] | None


def _same(kind: TensorType, shape: Sequence[Size]) -> TensorType:
    return kind.like(shape=tuple(shape), exact=kind.exact)


def regroup(draw: Draw, shape: Shape) -> Shape:
    """Return another shape of as many elements: dimensions merged, split, 1s added and removed."""
    result = [s for s in shape if s != 1 or draw.rng.random() < 0.5]
    for _ in range(draw.rng.randrange(3)):
        at = draw.rng.randrange(len(result)) if result else 0
        if len(result) > 1 and at and draw.rng.random() < 0.6:
            merged = product(result[at - 1 : at + 1])
            if merged is not None:
                result[at - 1 : at + 1] = [merged]
        elif result:
            result[at : at + 1] = _split(draw, result[at])
    if draw.rng.random() < 0.3:
        result.insert(draw.rng.randrange(len(result) + 1), 1)
    return tuple(result)


def _split(draw: Draw, size: Size) -> list[Size]:
    factor = draw.rng.choice([2, 3, 4])
    if isinstance(size, int):
        return [factor, size // factor] if size and size % factor == 0 else [size]
    if size.scale % factor == 0 and size.offset % factor == 0:
        return [factor, Affine(size.symbol, size.scale // factor, size.offset // factor)]
    return [size]


def _infer_reshape(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), shape = types, attrs["shape"]
    if not is_tensor(kind) or product(kind.shape) is None:
        return None
    # To Relax a 0 means the size that was there, so it can only be where there was one.
    if any(s == 0 and kind.shape[a : a + 1] != (0,) for a, s in enumerate(shape)):
        return None
    return _same(kind, shape) if product(kind.shape) == product(shape) else None


def _propose_reshape(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: product(t.shape) is not None)
    if x is None:
        return None
    shape = draw.type(x).shape
    way = draw.rng.random()
    if way < 0.15:
        return [x], {"shape": (product(shape),)}
    return [x], {"shape": shape if way < 0.2 else regroup(draw, shape)}


def _onnx_reshape(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    shape, old = step.attrs["shape"], types[0].shape
    dims = [s if isinstance(s, int) else -1 for s in shape]
    target = g.constant(np.array(dims, "int64"))
    if 0 in dims and -1 in dims and all(s in old for s in shape if not isinstance(s, int)):
        # Beside a 0 ONNX has no -1: the size is read from the operand.
        parts = [
            g.constant(np.array([s], "int64"))
            if isinstance(s, int)
            else g.node("Shape", names, start=old.index(s), end=old.index(s) + 1)
            for s in shape
        ]
        target = g.node("Concat", parts, axis=0)
    return g.node("Reshape", [*names, target], allowzero=int(0 in dims))


add(
    "reshape",
    Operator(
        _infer_reshape,
        lambda sizes, args, attrs: op.reshape(args[0], sizes(attrs["shape"])),
        lambda sizes, args, attrs: args[0].reshape(sizes(attrs["shape"])),
        _propose_reshape,
        _onnx_reshape,
        weight=5,
    ),
)


def _propose_axis(extra: int) -> Any:
    def propose(draw: Draw) -> Proposal:
        x = draw.pick(lambda t: len(t.shape) + extra > 0)
        if x is None:
            return None
        return [x], {"axis": draw.rng.randrange(len(draw.type(x).shape) + extra)}

    return propose


def _infer_expand(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axis = types, attrs["axis"]
    if not is_tensor(kind) or axis > len(kind.shape):
        return None
    return _same(kind, (*kind.shape[:axis], 1, *kind.shape[axis:]))


add(
    "expand_dims",
    Operator(
        _infer_expand,
        lambda sizes, args, attrs: op.expand_dims(args[0], attrs["axis"]),
        lambda sizes, args, attrs: np.expand_dims(args[0], attrs["axis"]),
        _propose_axis(1),
        lambda g, names, step, types: g.node(
            "Unsqueeze", [*names, g.constant(np.array([step.attrs["axis"]], "int64"))]
        ),
        weight=2,
    ),
)


def _infer_squeeze(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axis = types, attrs["axis"]
    if not is_tensor(kind) or axis >= len(kind.shape) or kind.shape[axis] != 1:
        return None
    return _same(kind, (*kind.shape[:axis], *kind.shape[axis + 1 :]))


def _propose_squeeze(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: 1 in t.shape)
    return None if x is None else ([x], {"axis": draw.type(x).shape.index(1)})


add(
    "squeeze",
    Operator(
        _infer_squeeze,
        lambda sizes, args, attrs: op.squeeze(args[0], attrs["axis"]),
        lambda sizes, args, attrs: np.squeeze(args[0], attrs["axis"]),
        _propose_squeeze,
        lambda g, names, step, types: g.node(
            "Squeeze", [*names, g.constant(np.array([step.attrs["axis"]], "int64"))]
        ),
        weight=2,
    ),
)


def _infer_permute(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axes = types, attrs["axes"]
    if not is_tensor(kind) or sorted(axes) != list(range(len(kind.shape))):
        return None
    return _same(kind, [kind.shape[a] for a in axes])


def _propose_permute(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: len(t.shape) > 1)
    if x is None:
        return None
    axes = list(range(len(draw.type(x).shape)))
    draw.rng.shuffle(axes)
    return [x], {"axes": tuple(axes)}


add(
    "permute_dims",
    Operator(
        _infer_permute,
        lambda sizes, args, attrs: op.permute_dims(args[0], list(attrs["axes"])),
        lambda sizes, args, attrs: np.transpose(args[0], attrs["axes"]),
        _propose_permute,
        lambda g, names, step, types: g.node("Transpose", names, perm=step.attrs["axes"]),
        weight=4,
    ),
)


def _infer_slice(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), axis = types, attrs["axis"]
    if not is_tensor(kind) or axis >= len(kind.shape) or not isinstance(kind.shape[axis], int):
        return None
    begin, end, stride = attrs["range"]
    if not 0 <= begin <= end <= kind.shape[axis]:
        return None
    count = len(range(begin, end, stride))
    return _same(kind, (*kind.shape[:axis], count, *kind.shape[axis + 1 :]))


def _propose_slice(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: any(isinstance(s, int) and s > 1 for s in t.shape))
    if x is None:
        return None
    shape = draw.type(x).shape
    axis = draw.rng.choice([a for a, s in enumerate(shape) if isinstance(s, int) and s > 1])
    begin = draw.rng.choice([0, 0, 1])
    end = draw.rng.randrange(begin + 1, shape[axis] + 1)
    if draw.rng.random() < 0.05:
        end = begin  # nothing is left
    return [x], {"axis": axis, "range": (begin, end, draw.rng.choice([1, 1, 2]))}


def _numpy_slice(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    return args[0][(slice(None),) * attrs["axis"] + (slice(*attrs["range"]),)]


def _onnx_slice(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    begin, end, stride = step.attrs["range"]
    given = [[begin], [end], [step.attrs["axis"]], [stride]]
    return g.node("Slice", [*names, *(g.constant(np.array(v, "int64")) for v in given)])


add(
    "slice",
    Operator(
        _infer_slice,
        lambda sizes, args, attrs: op.strided_slice(
            args[0], [attrs["axis"]], *([bound] for bound in attrs["range"])
        ),
        _numpy_slice,
        _propose_slice,
        _onnx_slice,
        weight=4,
    ),
)


def _infer_broadcast(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), shape = types, attrs["shape"]
    own = (1,) * (len(shape) - len(kind.shape)) + kind.shape if is_tensor(kind) else None
    if own is None or len(own) != len(shape):
        return None
    fits = all(s == 1 or s == t for s, t in zip(own, shape, strict=True))
    return _same(kind, shape) if fits else None


def _propose_broadcast(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: all(isinstance(s, int) for s in t.shape))
    if x is None:
        return None
    shape = [times(2, draw.rng.choice([1, 2])) if s == 1 else s for s in draw.type(x).shape]
    return [x], {"shape": (*([draw.rng.choice([1, 2])] * draw.rng.randrange(2)), *shape)}


add(
    "broadcast_to",
    Operator(
        _infer_broadcast,
        lambda sizes, args, attrs: op.broadcast_to(args[0], sizes(attrs["shape"])),
        lambda sizes, args, attrs: np.broadcast_to(args[0], sizes(attrs["shape"])),
        _propose_broadcast,
        lambda g, names, step, types: g.node(
            "Expand", [*names, g.constant(np.array(step.attrs["shape"], "int64"))]
        ),
        weight=1,
    ),
)
