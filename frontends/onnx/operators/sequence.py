"""Sequences of static length: lists of values while importing, which leave no code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.shape import reshape_to, slice_axis
from frontends.onnx.registry import converter
from frontends.onnx.value import SequenceValue, Value


def items_of(op: Op, place: int) -> tuple[Value, ...]:
    """Return the elements of a sequence input.

    Raises:
        InvalidModel: If the input is no sequence.
    """
    value = op.value(place)
    if not isinstance(value, SequenceValue):
        raise InvalidModel(f"input {place} is not a sequence")
    return value.items


def _sequence(op: Op, items: list[Value] | tuple[Value, ...], dtype: str) -> SequenceValue:
    return SequenceValue(op.title, dtype, items=tuple(items))


@converter("SequenceConstruct")
def sequence_construct(op: Op) -> SequenceValue:
    """Make a sequence of the inputs."""
    items = [op.value(place) for place in range(len(op.inputs))]
    return _sequence(op, items, items[0].dtype)


@converter("SequenceEmpty")
def sequence_empty(op: Op) -> SequenceValue:
    """Make a sequence without elements."""
    kind = op.attr("dtype", onnx.TensorProto.FLOAT)
    return _sequence(op, [], str(onnx.helper.tensor_dtype_to_np_dtype(kind)))


@converter("SequenceLength")
def sequence_length(op: Op) -> np.ndarray:
    """Return the number of elements, which is known."""
    return np.asarray(len(items_of(op, 0)), "int64")


@converter("SequenceAt")
def sequence_at(op: Op) -> Any:
    """Return an element; a position known only at run time selects among tensors of one shape."""
    items = items_of(op, 0)
    known = op.constant(1)
    if known is not None:
        place = int(known.reshape(-1)[0])
        if not -len(items) <= place < len(items):
            raise InvalidModel(f"position {place} is outside a sequence of {len(items)}")
        return items[place]
    if not items:
        raise InvalidModel("a sequence without elements is read")
    shape = items[0].shape
    for item in items[1:]:
        same = item.ndim == len(shape) and all(
            op.arithmetic.equal(a, b) for a, b in zip(item.shape, shape, strict=True)
        )
        if not same:
            raise op.unsupported("a position known only at run time, among different shapes")
    rows = [
        op.emit(exact_reshape(op.builder.expression(item), relax.ShapeExpr([1, *shape])))
        for item in items
    ]
    stacked = op.emit(R.concat(rows, 0)) if len(rows) > 1 else rows[0]
    place = indices_within(op, 1, [len(items)])
    flat = op.emit(exact_reshape(place, relax.ShapeExpr([1])))

    def compute(x: te.Tensor, position: te.Tensor) -> te.Tensor:
        index = position(0).astype("int64")
        return te.compute(list(x.shape)[1:], lambda *i: x(index, *i), name="sequence_at")

    return Value(op.title, items[0].dtype, expr=op.te(compute, stacked, flat))


@converter("SequenceInsert")
def sequence_insert(op: Op) -> SequenceValue:
    """Insert a tensor before a position, at the end by default."""
    items = list(items_of(op, 0))
    place = op.ints(2, "position")[0] if op.has(2) else len(items)
    if not -len(items) <= place <= len(items):
        raise InvalidModel(f"position {place} is outside a sequence of {len(items)}")
    items.insert(place, op.value(1))
    return _sequence(op, items, op.dtype(1))


@converter("SequenceErase")
def sequence_erase(op: Op) -> SequenceValue:
    """Remove the element at a position, the last one by default."""
    items = list(items_of(op, 0))
    place = op.ints(1, "position")[0] if op.has(1) else -1
    if not -len(items) <= place < len(items):
        raise InvalidModel(f"position {place} is outside a sequence of {len(items)}")
    del items[place]
    return _sequence(op, items, op.value(0).dtype)


@converter("SplitToSequence")
def split_to_sequence(op: Op) -> SequenceValue:
    """Cut a tensor along an axis into pieces of given sizes, of one size, or of size one."""
    axis, dims = op.axis(0), op.shape()
    length = dims[axis]
    drop = not op.has(1) and not op.attr("keepdims", 1)
    sizes: list[Dim]
    if op.has(1) and op.ndim(1) == 1:
        if not is_static(op.shape(1)[0]):
            raise op.unsupported("an unknown number of pieces")
        sizes = op.runtime_dims(1)
    else:
        each = op.ints(1, "split")[0] if op.has(1) else 1
        if not is_static(length):
            raise op.unsupported("a symbolic size cut into an unknown number of pieces")
        if each < 1:
            raise InvalidModel(f"pieces of size {each}")
        sizes = [min(each, int(length) - start) for start in range(0, int(length), each)]
    total = op.arithmetic.simplify(sum(sizes))
    op.require_equal(total, length, "sizes_add_up")
    items, start = [], 0
    for number, size in enumerate(sizes):
        piece = op.x() if len(sizes) == 1 else slice_axis(op, op.x(), axis, start, size, 1)
        if drop:
            piece = reshape_to(op, piece, [d for k, d in enumerate(dims) if k != axis])
            piece = piece if isinstance(piece, relax.Var) else op.emit(piece)
        items.append(Value(f"{op.title}_{number}", op.dtype(), expr=piece))
        start = op.arithmetic.simplify(start + size)
    return _sequence(op, items, op.dtype())


@converter("ConcatFromSequence")
def concat_from_sequence(op: Op) -> Any:
    """Join the elements along an axis, or along a new one."""
    items = items_of(op, 0)
    if not items:
        raise InvalidModel("a sequence without elements cannot be joined")
    new = bool(op.attr("new_axis", 0))
    rank = items[0].ndim + new
    axis = normalize_axis(int(op.attr("axis")), rank)
    pieces = list(items)
    if new:
        for place, item in enumerate(items):
            dims = list(item.shape)
            dims.insert(axis, 1)
            shaped = op.emit(exact_reshape(op.builder.expression(item), relax.ShapeExpr(dims)))
            pieces[place] = Value("", item.dtype, expr=shaped)
    if len(pieces) == 1:
        return pieces[0]
    return R.concat([op.builder.expression(piece) for piece in pieces], axis)


@converter("SequenceMap")
def sequence_map(op: Op) -> list[SequenceValue]:
    """Run the body on each element, or on the elements at one place of several sequences."""
    body: onnx.GraphProto = op.attr("body")
    count = len(items_of(op, 0))
    columns: list[list[Value]] = []
    for number in range(count):
        arguments = []
        for place in range(len(op.inputs)):
            value = op.value(place)
            if isinstance(value, SequenceValue):
                if len(value.items) != count:
                    raise InvalidModel("the sequences have different lengths")
                value = value.items[number]
            arguments.append(value)
        columns.append(op.builder.run_subgraph(body, arguments))
    if not columns:
        raise UnsupportedOperator("SequenceMap over a sequence without elements")
    return [
        SequenceValue(name, column[0].dtype, items=tuple(column))
        for name, column in zip(op.node.output, zip(*columns, strict=True), strict=True)
    ]
