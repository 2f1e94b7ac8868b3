"""What `benchmarks.gpu` runs: one operator or chain for each family of kernels, and whole models.

Each has sizes that fill a GPU, and small ones, awkward on purpose, for devices that are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

Shape = tuple[int, ...]
_SEED = 0


@dataclass(frozen=True)
class Case:
    """One family of kernels.

    Attributes:
        emit: Relax variables -> an expression.
        compute: The same with torch: (torch, tensors) -> a tensor.
        shapes: Of the inputs, for a GPU.
        small: Of the inputs, for a simulated one.
        dtype: Of the inputs and the result.
        indices: For the last input: it holds int64 numbers below its first size; False: floats.
    """

    emit: Callable[..., relax.Expr]
    compute: Callable[..., Any]
    shapes: Sequence[Shape]
    small: Sequence[Shape]
    dtype: str = "float32"
    indices: bool = False

    def sizes(self, small: bool) -> Sequence[Shape]:
        """Return the shapes of the inputs."""
        return self.small if small else self.shapes

    def source(self, small: bool) -> tuple[Any, Any]:
        """Return what `relaxc.compile` takes: a module, and no example inputs."""
        builder = relax.BlockBuilder()
        shapes = self.sizes(small)
        params = [
            relax.Var(f"x{at}", R.Tensor(shape, self._dtype_of(at)))
            for at, shape in enumerate(shapes)
        ]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(self.emit(*params)))
            builder.emit_func_output(result)
        return builder.get(), None

    def inputs(self, small: bool) -> list[np.ndarray]:
        """Return seeded inputs."""
        random = np.random.default_rng(_SEED)
        shapes = self.sizes(small)
        arrays = [random.standard_normal(s, dtype="float32").astype(self.dtype) for s in shapes]
        if self.indices:
            arrays[-1] = random.integers(0, shapes[0][0], shapes[-1])
        return arrays

    def function(self) -> Callable[..., Any]:
        """Return what computes it with torch."""
        import torch

        return lambda *tensors: self.compute(torch, *tensors)

    def _dtype_of(self, at: int) -> str:
        return "int64" if self.indices and at == len(self.shapes) - 1 else self.dtype


@dataclass(frozen=True)
class ModelCase:
    """A model of the zoo in float16, and its batch."""

    name: str
    batch: int
    dtype: str = "float16"

    def source(self, small: bool) -> tuple[Any, Any]:
        """Return the torch module and its example inputs, as `relaxc.compile` takes them."""
        import torch

        from benchmarks.zoo import torch_model

        module, example = torch_model(self.name)
        repeats = 1 if small else self.batch
        grown = tuple(x.repeat_interleave(repeats, 0) for x in example)
        return module.half(), tuple(x.half() if x.dtype == torch.float32 else x for x in grown)

    def inputs(self, small: bool) -> list[np.ndarray]:
        """Return the example inputs."""
        return [x.numpy() for x in self.source(small)[1]]

    def function(self) -> Callable[..., Any]:
        """Return the module, which moves to where its inputs are."""
        module, _ = self.source(True)

        def run(*tensors: Any) -> Any:
            floats = next((x.dtype for x in tensors if x.is_floating_point()), None)
            return module.to(tensors[0].device, floats)(*tensors)

        return run


def _gelu_of_sum(torch: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.gelu(x + y)


def _layer_norm(torch: Any, x: Any, scale: Any, shift: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift)


def _product(x: Any, y: Any) -> Any:
    """Return the product with sums in float32, as torch has them."""
    return op.astype(op.matmul(x, y, out_dtype="float32"), x.ty.dtype)


def _convolved(x: Any, w: Any, **options: Any) -> Any:
    return op.astype(op.nn.conv2d(x, w, padding=1, out_dtype="float32", **options), x.ty.dtype)


def _depthwise(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, stride=2, padding=1, groups=x.shape[1])


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def _products(dtype: str) -> dict[str, Case]:
    """Return the families that multiply, in one type."""

    def case(emit: Any, compute: Any, shapes: Sequence[Shape], small: Sequence[Shape]) -> Case:
        return Case(emit, compute, shapes, small, dtype)

    square = (4096, 4096)
    relu_of_convolution = lambda torch, x, w: torch.relu(  # noqa: E731
        torch.nn.functional.conv2d(x, w, padding=1)
    )
    return {
        "matmul": case(
            lambda x, y: op.nn.relu(_product(x, y)),
            lambda torch, x, y: torch.relu(x @ y),
            *([square, square], [(37, 45), (45, 70)]),
        ),
        "few_rows": case(
            *(_product, lambda torch, x, y: x @ y),
            *([(8, 4096), square], [(3, 45), (45, 130)]),
        ),
        "batched": case(
            *(_product, lambda torch, x, y: x @ y),
            *([(96, 512, 64), (96, 64, 512)], [(3, 20, 18), (3, 18, 33)]),
        ),
        "convolution": case(
            lambda x, w: op.nn.relu(_convolved(x, w)),
            relu_of_convolution,
            *([(32, 128, 28, 28), (128, 128, 3, 3)], [(1, 6, 9, 11), (20, 6, 3, 3)]),
        ),
        "depthwise": case(
            lambda x, w: _convolved(x, w, strides=2, groups=int(x.ty.shape[1])),
            _depthwise,
            *([(32, 192, 56, 56), (192, 1, 3, 3)], [(1, 10, 9, 11), (10, 1, 3, 3)]),
        ),
        "attention": case(
            op.nn.attention, _attention, [(4, 2048, 16, 64)] * 3, [(1, 21, 2, 16)] * 3
        ),
    }


_MAPS = {
    "elementwise": Case(
        lambda x, y: op.nn.gelu(op.add(x, y)), _gelu_of_sum, [(4096, 4097)] * 2, [(37, 13)] * 2
    ),
    "vectors": Case(
        lambda x, y: op.nn.gelu(op.add(x, y)), _gelu_of_sum, [(4096, 4096)] * 2, [(128, 128)] * 2
    ),
    "broadcast": Case(
        op.multiply, lambda torch, x, y: x * y, [(64, 512, 512), (512, 1)], [(5, 7, 9), (7, 1)]
    ),
    "transpose": Case(
        lambda x: op.permute_dims(x, [2, 0, 1]),
        lambda torch, x: x.permute(2, 0, 1).contiguous(),
        *([(64, 512, 512)], [(5, 33, 17)]),
    ),
    "gather": Case(
        lambda x, at: op.take(x, at, axis=0),
        lambda torch, x, at: x[at],
        *([(50000, 768), (8192,)], [(19, 7), (5,)]),
        indices=True,
    ),
    "scatter": Case(
        lambda x, y, at: op.scatter_elements(x, at, y, axis=0, reduction="add"),
        lambda torch, x, y, at: x.scatter_add(0, at, y),
        *([(4096, 256), (4096, 256), (4096, 256)], [(19, 7), (5, 7), (5, 7)]),
        indices=True,
    ),
}

_REDUCTIONS = {
    "reduction": Case(
        lambda x: op.sum(x, axis=[1]), lambda torch, x: x.sum(1), [(8192, 4096)], [(13, 300)]
    ),
    "columns": Case(
        lambda x: op.max(x, axis=[0]), lambda torch, x: x.amax(0), [(4096, 8192)], [(37, 70)]
    ),
    "softmax": Case(
        op.nn.softmax, lambda torch, x: torch.softmax(x, -1), [(8192, 4096)], [(7, 300)]
    ),
    "short_softmax": Case(
        op.nn.softmax, lambda torch, x: torch.softmax(x, -1), [(262144, 49)], [(19, 13)]
    ),
    "layer_norm": Case(
        lambda x, scale, shift: op.nn.layer_norm(x, scale, shift, axes=[-1]),
        _layer_norm,
        *([(16, 1024, 1024), (1024,), (1024,)], [(5, 3, 96), (96,), (96,)]),
    ),
    "pooling": Case(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 2, 1),
        *([(32, 64, 112, 112)], [(1, 5, 11, 9)]),
    ),
}

FAMILIES: dict[str, Case] = {**_MAPS, **_REDUCTIONS, **_products("float32")}
HALF_FAMILIES: dict[str, Case] = {
    f"{name}_float16": case for name, case in _products("float16").items()
}
MODELS: dict[str, ModelCase] = {
    "resnet50": ModelCase("resnet50", 32),
    "bert_base": ModelCase("bert_base", 32),
}
CASES: dict[str, Case | ModelCase] = {**FAMILIES, **HALF_FAMILIES, **MODELS}
