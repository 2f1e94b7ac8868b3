"""Loop and Scan: a body that is run again and again on what it returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.control_flow.rows import take_row
from frontends.dims import Dim, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter
from frontends.onnx.subgraphs import all_nodes
from frontends.onnx.value import Value, dim_array
from frontends.onnx.value_loop import ValueLoop


@converter("Loop")
def loop(op: Op) -> list[Value]:
    """Run the body up to a trip count, and as long as a condition holds."""
    body: onnx.GraphProto = op.attr("body")
    states = [op.value(place) for place in range(2, len(op.inputs))]
    if len(body.input) != 2 + len(states) or len(body.output) < 1 + len(states):
        raise InvalidModel(
            f"the body takes {len(body.input)} inputs and gives {len(body.output)} outputs, the "
            f"loop carries {len(states)} values"
        )
    counter = body.input[0].type.tensor_type
    builder = op.builder
    # Inside a step the condition holds: no step runs where it does not.
    holds = Value.constant("", np.ones(_shape_of(body.input[1]), bool))
    limit_name = op.node.input[0] if op.has(0) else ""

    def step(index: Dim, current: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        number = Value.of_dims("", dim_array([index], _shape_of(body.input[0])), "int64")
        if counter.elem_type == onnx.TensorProto.INT32:
            number.dtype = "int32"
        results = builder.run_subgraph(body, [number, holds, *current])
        return results[0], results[1 : 1 + len(states)], results[1 + len(states) :]

    def limit() -> Value | None:
        return builder.lookup(limit_name) if limit_name else None

    loop = ValueLoop(builder, op.title, step, _count_nodes(body), limit)
    final, scans = loop.run(states, op.inputs[1] if op.has(1) else None)
    return [*final, *scans]


def _shape_of(declared: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape a body declares for its counter or condition: () or (1,)."""
    return (1,) * len(declared.type.tensor_type.shape.dim)


def _count_nodes(graph: onnx.GraphProto) -> int:
    return sum(1 for _ in all_nodes(graph.node))


@converter("Scan", since=9)
def scan(op: Op) -> list[Value]:
    """Run the body over slices of the scan inputs (opset 9 on)."""
    body: onnx.GraphProto = op.attr("body")
    scanned = op.count("num_scan_inputs")
    carried = len(op.inputs) - scanned
    if carried < 0:
        raise InvalidModel(f"num_scan_inputs is {scanned}, the node has {len(op.inputs)} inputs")
    outputs = len(body.output) - carried
    axes = op.attr("scan_input_axes") or [0] * scanned
    axes = [normalize_axis(a, op.ndim(carried + k)) for k, a in enumerate(axes)]
    names = list(op.node.input[carried:])
    results = _scan(
        op,
        [op.value(place) for place in range(carried)],
        names,
        axes,
        op.attr("scan_input_directions") or [0] * scanned,
    )
    directions = op.attr("scan_output_directions") or [0] * outputs
    places = op.attr("scan_output_axes") or [0] * outputs
    for number, (backward, place) in enumerate(zip(directions, places, strict=True), carried):
        value = results[number]
        if backward:
            value = _reversed(op, value)
        place = normalize_axis(place, value.ndim)
        if place:
            order = [*range(1, place + 1), 0, *range(place + 1, value.ndim)]
            moved = op.emit(R.permute_dims(op.builder.expression(value), order))
            value = Value("", value.dtype, expr=moved)
        results[number] = value
    return results


def _scan(
    op: Op,
    states: Sequence[Value],
    names: Sequence[str],
    axes: Sequence[int],
    directions: Sequence[int],
) -> list[Value]:
    """Scan over the values that `names` stand for; return states and rows along axis 0."""
    body: onnx.GraphProto = op.attr("body")
    builder = op.builder
    if not names:
        raise InvalidModel("nothing to scan")
    lengths = [builder.lookup(name).shape[axis] for name, axis in zip(names, axes, strict=True)]
    known = [length for length in lengths if is_static(length)]
    if len(set(known)) > 1:
        raise InvalidModel(f"the scan inputs have different lengths: {known}")
    length = known[0] if known else lengths[0]

    def slice_of(name: str, axis: int, backward: int, index: Dim) -> Value:
        value = builder.lookup(name)
        place = length - 1 - index if backward else index

        taken = take_row(builder.functions, builder.expression(value), axis, place)
        return Value("", value.dtype, expr=taken)

    def step(index: Dim, current: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        slices = [
            slice_of(name, axis, backward, index)
            for name, axis, backward in zip(names, axes, directions, strict=True)
        ]
        results = builder.run_subgraph(body, [*current, *slices])
        forever = Value.constant("", np.asarray(True))
        return forever, results[: len(states)], results[len(states) :]

    def limit() -> Value:
        return Value.of_dims("", dim_array([length], ()))

    loop = ValueLoop(builder, op.title, step, _count_nodes(body), limit)
    final, scans = loop.run(states, None)
    return [*final, *scans]


def _reversed(op: Op, value: Value) -> Value:
    """Return a tensor with its rows in the opposite order."""
    flipped = op.emit(R.flip(op.builder.expression(value), 0))
    return Value("", value.dtype, expr=flipped)


@converter("Scan", since=8)
def scan_batch(op: Op) -> list[Value]:
    """Run the body over each entry of a batch by itself (opset 8): axis 1 is the scanned one.

    An entry may be shorter than the others: rows beyond its length are not read, and are 0 in the
    results.
    """
    body: onnx.GraphProto = op.attr("body")
    scanned = op.count("num_scan_inputs")
    if scanned >= len(op.inputs):
        raise InvalidModel(f"num_scan_inputs is {scanned}, the node has {len(op.inputs)} inputs")
    directions = op.attr("directions") or [0] * scanned
    batch = op.shape(1)[0]
    if not is_static(batch) or not batch:
        raise op.unsupported("a batch of symbolic or no size (opset 8)")
    first_scanned = len(op.inputs) - scanned
    longest = op.shape(first_scanned)[1] if scanned else 0
    lengths = _entry_lengths(op, int(batch), longest) if op.has(0) else None
    builder = op.builder
    columns: list[list[Value]] = []
    for entry in range(int(batch)):
        values = [_entry(op, place, entry) for place in range(1, len(op.inputs))]
        carried = values[: first_scanned - 1]
        names = [f"{op.title}_{entry}_{k}" for k in range(scanned)]
        for name, value in zip(names, values[first_scanned - 1 :], strict=True):
            short = value if lengths is None else _with_rows(op, value, lengths[entry])
            builder.bind(name, short)
        column = _scan(op, carried, names, [0] * scanned, directions)
        if lengths is not None:
            finals, scans = column[: len(carried)], column[len(carried) :]
            column = [*finals, *(_with_rows(op, value, longest) for value in scans)]
        columns.append(column)
    results = []
    for parts in zip(*columns, strict=True):
        rows = [
            op.emit(R.reshape(builder.expression(p), relax.ShapeExpr([1, *p.shape]))) for p in parts
        ]
        joined = rows[0] if len(rows) == 1 else op.emit(R.concat(rows, 0))
        results.append(Value("", parts[0].dtype, expr=joined))
    if len(results) != len(body.output):
        raise InvalidModel("the body's outputs do not fit the scan")
    return results


def _entry_lengths(op: Op, batch: int, longest: Dim) -> list[Dim]:
    """Return how many rows of each entry are scanned; a run checks that they are there."""
    lengths = op.runtime_dims(0)
    if len(lengths) != batch:
        raise InvalidModel(f"{len(lengths)} sequence lengths for a batch of {batch}")
    for length in lengths:
        if not (is_static(length) and is_static(longest)):
            op.require(tirx.all(prim(length) >= 0, prim(length) <= prim(longest)), "lengths")
        elif not 0 <= length <= longest:
            raise InvalidModel(f"a sequence length of {length} for {longest} rows")
    return lengths


def _with_rows(op: Op, value: Value, count: Dim) -> Value:
    """Return the first `count` rows of a tensor, rows of 0 after those that it has."""
    if op.arithmetic.equal(value.shape[0], count):
        return value

    def compute(x: te.Tensor, sizes: list[Any]) -> te.Tensor:
        zero = tirx.const(0, str(x.dtype))
        return te.compute(
            [sizes[0], *x.shape[1:]],
            lambda row, *i: tirx.if_then_else(row < x.shape[0], x(row, *i), zero),
            name="rows",
        )

    rows = op.te(compute, op.builder.expression(value), name="rows", dims=[count])
    return Value("", value.dtype, expr=rows)


def _entry(op: Op, place: int, number: int) -> Value:
    """Return one entry of a batch."""
    part = op.emit(R.strided_slice(op.x(place), [0], [number], [number + 1]))
    dims = relax.ShapeExpr(list(op.shape(place)[1:]))
    return Value("", op.dtype(place), expr=op.emit(R.reshape(part, dims)))
