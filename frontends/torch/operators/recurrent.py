"""Recurrent layers, kept whole: one kernel a layer walks the sequence, of symbolic length too.

torch's gates come in another order than the cells': i f g o of an LSTM are i o f c there, and
r z n of a GRU are z r h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax

from frontends.computations.recurrent import Activation, Cell, Layer, recurrent
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
_FUNCTIONS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh")}


@converter("aten.lstm.input")
def lstm(
    b: GraphBuilder, x: Value, hx: Any, params: Any, *options: Any
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The sequence of hidden states, the last hidden and the last cell state of every layer."""
    sequence, states, cells = _stack(b, "lstm", _FUNCTIONS["lstm"], x, hx, params, *options)
    return sequence, states, cells


@converter("aten.gru.input")
def gru(
    b: GraphBuilder, x: Value, hx: Value, params: Any, *options: Any
) -> tuple[relax.Expr, relax.Expr]:
    """The sequence of hidden states and the last one of every layer."""
    return _stack(b, "gru", _FUNCTIONS["gru"], x, [hx], params, *options)[:2]


@converter("aten.rnn_tanh.input")
def rnn_tanh(
    b: GraphBuilder, x: Value, hx: Value, params: Any, *options: Any
) -> tuple[relax.Expr, relax.Expr]:
    """As `gru`, of the plain cell tanh(W x + R h + b)."""
    return _stack(b, "rnn", ("Tanh",), x, [hx], params, *options)[:2]


@converter("aten.rnn_relu.input")
def rnn_relu(
    b: GraphBuilder, x: Value, hx: Value, params: Any, *options: Any
) -> tuple[relax.Expr, relax.Expr]:
    """As `gru`, of the plain cell relu(W x + R h + b)."""
    return _stack(b, "rnn", ("Relu",), x, [hx], params, *options)[:2]


def _stack(
    b: GraphBuilder,
    kind: str,
    functions: Sequence[str],
    x: Value,
    initial: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[relax.Expr, relax.Expr, Any]:
    if train and dropout > 0:
        raise b.unsupported("dropout between layers")
    if len(params) != num_layers * (2 if bidirectional else 1) * (4 if has_biases else 2):
        raise b.unsupported("projected states (proj_size)")
    reverse = (False, True) if bidirectional else (False,)
    cell = Cell(
        kind=kind,
        reverse=reverse,
        activations=tuple(tuple(Activation(name) for name in functions) for _ in reverse),
        linear_before_reset=True,
        batch_first=batch_first,
    )
    sequence = b.tensor(x)
    states = [b.tensor(state) for state in initial]
    last: list[list[relax.Expr]] = [[], []]
    for number in range(num_layers):
        weights = _layer_weights(b, kind, params, number, len(reverse), has_biases)
        first, end = number * len(reverse), (number + 1) * len(reverse)
        begin = [b.slice_axis(state, 0, first, end) for state in states]
        layer = Layer(sequence, *weights, h=begin[0], c=begin[1] if kind == "lstm" else None)
        whole, hidden, memory = recurrent(b, cell, layer)
        last[0].append(hidden)
        if memory is not None:
            last[1].append(memory)
        sequence = _directions_last(b, whole, batch_first)
    hiddens, cells = (_joined(b, parts) for parts in last)
    assert hiddens is not None
    return sequence, hiddens, cells


def _joined(b: GraphBuilder, parts: list[relax.Expr]) -> relax.Expr | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return b.emit(relax.op.concat(parts, axis=0))


def _directions_last(b: GraphBuilder, whole: Any, batch_first: bool) -> relax.Expr:
    """Return (T, D, B, H) or (B, T, D, H) as (T, B, D * H) or (B, T, D * H)."""
    x = whole if batch_first else b.permute(whole, [0, 2, 1, 3])
    shape = b.shape(x)
    return b.reshape(x, [*shape[:2], shape[2] * shape[3]])


def _layer_weights(
    b: GraphBuilder, kind: str, params: Sequence[Value], layer: int, directions: int, biased: bool
) -> tuple[relax.Expr, relax.Expr, relax.Expr | None]:
    """Return input weights, recurrent weights and biases of a layer, a direction a row."""
    width = 4 if biased else 2
    rows: list[list[Value]] = [[], [], []]
    for direction in range(directions):
        own = params[(layer * directions + direction) * width :][:width]
        for place in range(2):
            rows[place].append(_reordered(b, own[place], kind))
        if biased:
            both = [_reordered(b, own[place], kind) for place in (2, 3)]
            rows[2].append(_stacked(b, both, new_axis=False))
    weights = [_stacked(b, part, new_axis=True) for part in rows[:2]]
    return weights[0], weights[1], _stacked(b, rows[2], new_axis=True) if biased else None


def _reordered(b: GraphBuilder, weight: Value, kind: str) -> Value:
    """Return rows (gates * H, …) with the gates in the cell's order."""
    order = _GATES[kind]
    if len(order) == 1:
        return weight
    if isinstance(weight, torch.Tensor):
        return torch.cat([weight.chunk(len(order))[gate] for gate in order])
    units = b.static(b.shape(weight)[0]) // len(order)
    parts = [b.slice_axis(weight, 0, gate * units, (gate + 1) * units) for gate in order]
    return b.emit(relax.op.concat(parts, axis=0))


def _stacked(b: GraphBuilder, parts: list[Value], new_axis: bool) -> Value:
    if all(isinstance(part, torch.Tensor) for part in parts):
        whole = torch.stack(parts) if new_axis else torch.cat(parts)
        return b.tensor(whole) if new_axis else whole
    tensors = [b.tensor(part) for part in parts]
    if new_axis:
        tensors = [b.emit(relax.op.expand_dims(part, 0)) for part in tensors]
    return tensors[0] if len(tensors) == 1 else b.emit(relax.op.concat(tensors, axis=0))
