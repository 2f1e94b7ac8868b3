"""Views that are more than a shape: other strides, diagonals, windows. Here each is a copy."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te

from frontends.computations.kernel import index
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.scatter import write_at
from frontends.torch.output_views import is_view
from frontends.torch.registry import converter
from frontends.torch.sizes import inverse


@converter("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    b: GraphBuilder, x: Value, size: Any, stride: Any, storage_offset: Any = None
) -> relax.Expr:
    """Elements at strides of the operand's storage, whose order torch's own strides tell.

    Offsets count from the beginning of the storage: of that what the operand is a view of is known.
    """
    node = b.node.args[0]
    while isinstance(node, torch.fx.Node) and is_view(node.target):
        node = node.args[0]
    assert isinstance(node, torch.fx.Node)
    flat = _flat(b, b.tensor(b.value_of(node)), node.meta["val"])
    dims = b.result_shape
    start, steps = _places(b, node.meta["val"], b.shape(flat)[0], dims, stride, storage_offset)

    def compute(t: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            place: Any = index(start)
            for i, step in zip(at, steps, strict=True):
                place = place + i * step
            return t(place)

        return te.compute(tuple(sizes), element, name="as_strided")

    if not dims:
        return b.reshape(b.slice_axis(flat, 0, start, start + 1), [])
    return b.te(compute, flat, dims=dims)


@converter("aten.as_strided_scatter.default")
def as_strided_scatter(
    b: GraphBuilder, x: Value, src: Value, size: Any, stride: Any, storage_offset: Any = None
) -> relax.Expr:
    """X with src written at strides of its storage, whose order torch's own strides tell."""
    node = b.node.args[0]
    assert isinstance(node, torch.fx.Node)
    fake = node.meta["val"]
    flat = _flat(b, b.tensor(x), fake)
    sizes = [b.static(b.size(n)) for n in size]
    start, steps = _places(b, fake, b.shape(flat)[0], sizes, stride, storage_offset)
    places = torch.tensor(start)
    for n, step in zip(sizes, steps, strict=True):
        places = places[..., None] + torch.arange(n) * step
    updates = b.reshape(b.broadcast(b.tensor(src, b.dtype), sizes), [-1])
    written = write_at(b, flat, 0, places.reshape(-1), updates)
    order = _memory_order(b, fake)
    moved = b.reshape(written, [b.result_shape[axis] for axis in order])
    return b.permute(moved, inverse(order))


def _flat(b: GraphBuilder, x: relax.Expr, fake: torch.Tensor) -> relax.Expr:
    """Return the elements in the order they have in the operand's storage, on one axis."""
    return b.reshape(b.permute(x, _memory_order(b, fake)), [-1])


def _places(
    b: GraphBuilder, fake: torch.Tensor, count: Any, dims: Any, stride: Any, storage_offset: Any
) -> tuple[int, list[int]]:
    """Return where a view of an operand begins, and its steps, all within `count` elements."""
    base = b.static(b.size(fake.storage_offset()))
    offset = b.static(b.size(storage_offset)) if storage_offset is not None else base
    steps = [b.static(b.size(step)) for step in stride]
    start = offset - base
    last = start + sum((b.static(n) - 1) * s for n, s in zip(dims, steps, strict=True))
    if start < 0 or last >= b.static(count):
        raise b.unsupported("a view beyond the elements of its operand")
    return start, steps


def _memory_order(b: GraphBuilder, fake: torch.Tensor) -> list[int]:
    """Return the axes in the order of the operand's storage."""
    if fake.is_contiguous():
        return list(range(fake.ndim))
    order = sorted(range(fake.ndim), key=lambda axis: -fake.stride(axis))
    if not fake.permute(order).is_contiguous():
        raise b.unsupported("an operand whose storage has gaps or overlaps")
    return order


@converter("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(
    b: GraphBuilder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> relax.Expr:
    """The diagonals of the matrices in two axes, as the last axis."""
    data = b.tensor(x)
    first, second = b.axis(dim1, data.ty.ndim), b.axis(dim2, data.ty.ndim)
    rest = [axis for axis in range(data.ty.ndim) if axis not in (first, second)]
    matrices = b.permute(data, [*rest, first, second])
    down, right = max(-offset, 0), max(offset, 0)

    def compute(t: te.Tensor, sizes: list[Any]) -> te.Tensor:
        return te.compute(
            tuple(sizes), lambda *at: t(*at[:-1], at[-1] + down, at[-1] + right), name="diagonal"
        )

    return b.te(compute, matrices, dims=b.result_shape)


@converter("aten.unfold.default", "aten.unfold_copy.default")
def unfold(b: GraphBuilder, x: Value, dimension: int, size: int, step: int) -> relax.Expr:
    """Windows along one axis; the elements of a window are a new last axis."""
    data = b.tensor(x)
    if data.ty.ndim == 0:
        return b.broadcast(b.reshape(data, [1]), b.result_shape)
    axis = b.axis(dimension, data.ty.ndim)

    def compute(t: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            place = at[axis] * step + at[-1]
            return t(*at[:axis], place, *at[axis + 1 : -1])

        return te.compute(tuple(sizes), element, name="unfold")

    return b.te(compute, data, dims=b.result_shape)
