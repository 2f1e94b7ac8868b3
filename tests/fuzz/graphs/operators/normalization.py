"""Softmax and the norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.recipe import Attributes, TensorType

nn = relax.op.nn
Proposal = tuple[Sequence[int], dict[str, Any]] | None
_EPSILON = 1e-3


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    raised = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return raised / np.sum(raised, axis, keepdims=True)


def _log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True))


def _add_softmax(name: str, build: Any, compute: Any, onnx: str, bounds: Any) -> None:
    def infer(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
        (kind,), axis = types, attrs["axis"]
        if not is_tensor(kind, "float32", "float16", "float64") or axis >= len(kind.shape):
            return None
        low, high = bounds(kind)
        return kind.like(low=low, high=high)

    def propose(draw: Draw) -> Proposal:
        x = draw.pick(lambda t: t.is_float and len(t.shape) > 0)
        if x is None:
            return None
        rank = len(draw.type(x).shape)
        return [x], {"axis": draw.rng.choice([rank - 1, rank - 1, draw.rng.randrange(rank)])}

    add(
        name,
        Operator(
            infer,
            lambda sizes, args, attrs: build(args[0], attrs["axis"]),
            lambda sizes, args, attrs: compute(args[0], attrs["axis"]),
            propose,
            lambda g, names, step, types: g.node(onnx, names, axis=step.attrs["axis"]),
            weight=1.5,
        ),
    )


_add_softmax("softmax", nn.softmax, _softmax, "Softmax", lambda t: (0.0, 1.0))
_add_softmax(
    "log_softmax", nn.log_softmax, _log_softmax, "LogSoftmax", lambda t: (t.low - t.high - 9, 0.0)
)


# Layer norm, RMS norm -----------------------------------------------------------------------------


def _infer_layer_norm(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    kind, *rest = types
    if not is_tensor(kind, "float32") or not kind.shape or not isinstance(kind.shape[-1], int):
        return None
    if any(not is_tensor(t, "float32") or t.shape != kind.shape[-1:] for t in rest):
        return None
    if kind.shape[-1] == 0:
        return None
    bound = kind.shape[-1] ** 0.5 * rest[0].bound + sum(t.bound for t in rest[1:])
    return kind.like(low=-bound, high=bound)


def _propose_norm(operands: int) -> Any:
    def propose(draw: Draw) -> Proposal:
        x = draw.pick(lambda t: t.dtype == "float32" and bool(t.shape))
        if x is None or not isinstance(draw.type(x).shape[-1], int):
            return None
        size = draw.type(x).shape[-1:]
        return [x, *(draw.weight(size, "float32") for _ in range(operands))], {}

    return propose


def _numpy_layer_norm(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    x, gamma, beta = args
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPSILON) * gamma + beta


def _numpy_rms_norm(sizes: Any, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    x, gamma = args
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + _EPSILON) * gamma


add(
    "layer_norm",
    Operator(
        _infer_layer_norm,
        lambda sizes, args, attrs: nn.layer_norm(*args, axes=[-1], epsilon=_EPSILON),
        _numpy_layer_norm,
        _propose_norm(2),
        lambda g, names, step, types: g.node(
            "LayerNormalization", names, axis=-1, epsilon=_EPSILON
        ),
        weight=1.5,
    ),
)
add(
    "rms_norm",
    Operator(
        _infer_layer_norm,
        lambda sizes, args, attrs: nn.rms_norm(*args, axes=[-1], epsilon=_EPSILON),
        _numpy_rms_norm,
        _propose_norm(1),
    ),
)


# Batch norm: all three results, so that the second and third are unused outputs -------------------


def _infer_batch_norm(types: Sequence[Any], attrs: Attributes) -> tuple[TensorType, ...] | None:
    kind, *rest = types
    if not is_tensor(kind, "float32") or len(kind.shape) < 2:
        return None
    if any(not is_tensor(t, "float32") or t.shape != (kind.shape[1],) for t in rest):
        return None
    gamma, beta, mean, var = rest
    if var.low < 0.1:
        return None
    bound = (kind.bound + mean.bound) / var.low**0.5 * gamma.bound + beta.bound
    return (kind.like(low=-bound, high=bound), mean, var)


def _propose_batch_norm(draw: Draw) -> Proposal:
    x = draw.pick(
        lambda t: t.dtype == "float32" and len(t.shape) > 1 and isinstance(t.shape[1], int)
    )
    if x is None:
        return None
    size = (int(draw.type(x).shape[1]),)
    rest = [draw.constant(size, "float32") for _ in range(3)]
    return [x, *rest, draw.constant(size, "float32", 0.5, 1.5)], {}


def _numpy_batch_norm(sizes: Any, args: Sequence[Any], attrs: Attributes) -> tuple[Any, ...]:
    x, *rest = args
    wide = (-1,) + (1,) * (x.ndim - 2)
    gamma, beta, mean, var = (v.reshape(wide) for v in rest)
    normal = (x - mean) / np.sqrt(var + _EPSILON) * gamma + beta
    return (normal, rest[2], rest[3])


def _onnx_batch_norm(g: Any, names: Sequence[str], step: Any, types: Sequence[Any]) -> Any:
    normal = g.node("BatchNormalization", names, epsilon=_EPSILON)
    return [normal, g.node("Identity", names[3:4]), g.node("Identity", names[4:5])]


add(
    "batch_norm",
    Operator(
        _infer_batch_norm,
        lambda sizes, args, attrs: nn.batch_norm(*args, 1, epsilon=_EPSILON, training=False),
        _numpy_batch_norm,
        _propose_batch_norm,
        _onnx_batch_norm,
        weight=1.5,
    ),
)
