"""One small graph for each family of kernels, with what NumPy or torch say it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """What a family computes of float32 tensors (int64 ones hold indices below `indices`).

    Attributes:
        emit: Relax variables -> an expression.
        shapes: Of the inputs.
        reference: Arrays -> the result.
        rule: The schedule rule that takes it on a target without warps.
        indices: For the last input: it holds indices below this number; 0: it holds floats.
    """

    emit: Callable[..., relax.Expr]
    shapes: Sequence[Shape]
    reference: Callable[..., np.ndarray]
    rule: str
    indices: int = 0

    def module(self) -> tvm.IRModule:
        """Return the graph."""
        builder = relax.BlockBuilder()
        dtypes = ["float32"] * len(self.shapes)
        if self.indices:
            dtypes[-1] = "int64"
        params = [
            relax.Var(f"x{at}", R.Tensor(shape, dtype))
            for at, (shape, dtype) in enumerate(zip(self.shapes, dtypes, strict=True))
        ]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(self.emit(*params)))
            builder.emit_func_output(result)
        return builder.get()

    def inputs(self) -> list[np.ndarray]:
        """Return seeded inputs."""
        random = np.random.default_rng(0)
        arrays = [random.standard_normal(shape).astype("float32") for shape in self.shapes]
        if self.indices:
            arrays[-1] = random.integers(0, self.indices, self.shapes[-1])
        return arrays


def _torch(compute: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Return a function of arrays that computes with torch on the processor."""

    def reference(*arrays: np.ndarray) -> np.ndarray:
        import torch

        return np.asarray(compute(torch, *map(torch.from_numpy, arrays)))

    return reference


def _gelu(torch: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.gelu(x + y)


def _layer_norm(torch: Any, x: Any, scale: Any, shift: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift)


def _depthwise(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, stride=2, padding=1, groups=x.shape[1])


def _convolution(torch: Any, x: Any, w: Any) -> Any:
    return torch.relu(torch.nn.functional.conv2d(x, w, stride=2, padding=1))


def _scatter(torch: Any, x: Any, y: Any, at: Any) -> Any:
    return x.scatter_add(0, at, y)


FAMILIES = {
    "elementwise": Family(
        lambda x, y: op.nn.gelu(op.add(x, y)), [(37, 13)] * 2, _torch(_gelu), "elementwise"
    ),
    "vectors": Family(
        lambda x, y: op.nn.gelu(op.add(x, y)), [(128, 128)] * 2, _torch(_gelu), "elementwise"
    ),
    "broadcast": Family(
        lambda x, y: op.multiply(x, y), [(5, 7, 9), (7, 1)], np.multiply, "elementwise"
    ),
    "reduction": Family(
        lambda x: op.sum(x, axis=[1]), [(13, 300)], lambda x: x.sum(1), "row_kernel"
    ),
    "columns": Family(lambda x: op.max(x, axis=[0]), [(37, 70)], lambda x: x.max(0), "reduction"),
    "softmax": Family(
        lambda x: op.nn.softmax(x),
        [(7, 300)],
        _torch(lambda torch, x: torch.softmax(x, -1)),
        "row_kernel",
    ),
    "short_softmax": Family(
        lambda x: op.nn.softmax(x),
        [(19, 13)],
        _torch(lambda torch, x: torch.softmax(x, -1)),
        "row_kernel",
    ),
    "layer_norm": Family(
        lambda x, s, b: op.nn.layer_norm(x, s, b, axes=[-1]),
        [(5, 3, 96), (96,), (96,)],
        _torch(_layer_norm),
        "row_kernel",
    ),
    "transpose": Family(
        lambda x: op.permute_dims(x, [2, 0, 1]),
        [(5, 33, 17)],
        lambda x: x.transpose(2, 0, 1),
        "elementwise",
    ),
    "pooling": Family(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        [(1, 5, 11, 9)],
        _torch(lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 2, 1)),
        "reduction",
    ),
    "depthwise": Family(
        lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1, groups=10),
        [(1, 10, 9, 11), (10, 1, 3, 3)],
        _torch(_depthwise),
        "window",
    ),
    "matmul": Family(
        lambda x, y: op.nn.relu(op.matmul(x, y)),
        [(37, 45), (45, 70)],
        lambda x, y: np.maximum(x @ y, 0),
        "contraction",
    ),
    "few_rows": Family(
        lambda x, y: op.matmul(x, y), [(3, 45), (45, 130)], lambda x, y: x @ y, "contraction"
    ),
    "batched": Family(
        lambda x, y: op.matmul(x, y), [(3, 20, 18), (3, 18, 33)], lambda x, y: x @ y, "contraction"
    ),
    "convolution": Family(
        lambda x, w: op.nn.relu(op.nn.conv2d(x, w, strides=2, padding=1)),
        [(1, 6, 9, 11), (20, 6, 3, 3)],
        _torch(_convolution),
        "contraction",
    ),
    "gather": Family(
        lambda x, at: op.take(x, at, axis=0),
        [(19, 7), (5,)],
        lambda x, at: x[at],
        "elementwise",
        indices=19,
    ),
    "scatter": Family(
        lambda x, y, at: op.scatter_elements(x, at, y, axis=0, reduction="add"),
        [(19, 7), (5, 7), (5, 7)],
        _torch(_scatter),
        "fallback",
        indices=19,
    ),
}
