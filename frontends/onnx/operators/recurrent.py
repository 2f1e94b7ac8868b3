"""Recurrent layers: RNN, GRU, LSTM, and the LSTM of com.microsoft with 8-bit weights.

Versions differ in what they allow (attribute layout since 14, bfloat16 since 22), not in meaning;
the first ones' output_sequence says only whether Y is wanted, as its place among the outputs does.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.computations.dynamic_quantization import round_to_codes
from frontends.computations.gate_activation import DEFAULTS, NAMES
from frontends.computations.recurrent import Activation, Cell, Layer, recurrent
from frontends.dims import Dim, dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.broadcasting import known_one
from frontends.onnx.indices import at_most
from frontends.onnx.op import Op
from frontends.onnx.registry import converter

_DEFAULT_ACTIVATIONS = {
    "rnn": ["Tanh"],
    "gru": ["Sigmoid", "Tanh"],
    "lstm": ["Sigmoid", "Tanh", "Tanh"],
}
_REVERSE = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@converter("RNN")
def rnn(op: Op) -> list[Any]:
    """Return Y and Y_h of a plain recurrent layer."""
    return _outputs(op, _cell(op, "rnn"), _Inputs(op))


@converter("GRU")
def gru(op: Op) -> list[Any]:
    """Return Y and Y_h of a gated recurrent unit."""
    return _outputs(op, _cell(op, "gru"), _Inputs(op))


@converter("LSTM")
def lstm(op: Op) -> list[Any]:
    """Return Y, Y_h and Y_c of a long short-term memory."""
    return _outputs(op, _cell(op, "lstm"), _Inputs(op))


@converter("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(op: Op) -> list[Any]:
    """Return an LSTM with 8-bit weights, its input and states rounded to 8 bits at run time.

    8-bit codes and their products are exact in float32, so the products are taken there.
    """
    inputs = _Inputs(op)
    inputs.x = round_to_codes(op, inputs.x)
    inputs.w = _decoded(op, 1, 8, 9)
    inputs.r = _decoded(op, 2, 10, 11)
    return _outputs(op, _cell(op, "lstm", quantize_state=True), inputs)


def _decoded(op: Op, weights: int, scale: int, zero: int) -> relax.Expr:
    """Return weights, stored as (D, inputs, 4 H), as floats (D, 4 H, inputs).

    Constant ones are decoded here: floats are larger than codes, so no pass would do it.
    """

    def form(place: int) -> list[Any]:
        """Return the shape of one parameter a direction, or one a direction and column."""
        shape = op.shape(place)
        return [shape[0], 1, shape[1] if len(shape) == 2 else 1]

    known = [op.constant(place) for place in (weights, scale, zero)]
    if known[0] is not None and known[1] is not None and (known[2] is not None or not op.has(zero)):
        values = known[0].astype("float32")
        if known[2] is not None:
            values -= known[2].reshape(form(zero))
        values *= known[1].reshape(form(scale))
        return op.const(values.transpose(0, 2, 1), "float32")

    def column(place: int) -> relax.Expr:
        x = op.emit(R.astype(op.x(place), "float32"))
        return op.emit(R.reshape(x, relax.ShapeExpr(form(place))))

    codes = op.emit(R.astype(op.x(weights), "float32"))
    if op.has(zero):
        codes = op.emit(R.subtract(codes, column(zero)))
    return op.emit(R.permute_dims(op.emit(R.multiply(codes, column(scale))), [0, 2, 1]))


def _cell(op: Op, kind: str, quantize_state: bool = False) -> Cell:
    """Read the attributes."""
    reverse = _REVERSE[op.attr("direction", "forward")]
    clip = op.attr("clip")
    return Cell(
        kind=kind,
        reverse=reverse,
        activations=_activations(op, kind, len(reverse)),
        clip=float(clip) if clip is not None and clip > 0 else None,
        input_forget=bool(op.attr("input_forget", 0)),
        linear_before_reset=bool(op.attr("linear_before_reset", 0)),
        batch_first=bool(op.attr("layout", 0)),
        quantize_state=quantize_state,
    )


def _activations(op: Op, kind: str, directions: int) -> tuple[tuple[Activation, ...], ...]:
    """Give each activation its parameters: the lists hold them for those only that have some."""
    usual = _DEFAULT_ACTIVATIONS[kind]
    names = op.attr("activations") or usual * directions
    if len(names) == len(usual) and directions == 2:
        names = names * 2
    if len(names) != len(usual) * directions:
        raise InvalidModel(f"{len(names)} activations for {directions} directions")
    alphas, betas = iter(op.attr("activation_alpha", [])), iter(op.attr("activation_beta", []))
    known = {name.lower(): name for name in NAMES}
    found = []
    for given in names:
        name = known.get(given.lower())
        if name is None:
            raise InvalidModel(f"activation {given!r} is not one of {', '.join(NAMES)}")
        usual_values = DEFAULTS.get(name, ())
        values = [
            float(next(source, default))
            for source, default in zip((alphas, betas), usual_values, strict=False)
        ]
        found.append(Activation(name, *values))
    count = len(usual)
    return tuple(tuple(found[d * count : (d + 1) * count]) for d in range(directions))


class _Inputs:
    """The inputs in the dtype of the computation: float32 for narrower types."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.dtype = "float64" if op.dtype() == "float64" else "float32"
        self.batch_first = bool(op.attr("layout", 0))
        self.x, self.w, self.r = (self.wide(place) for place in range(3))

    def wide(self, place: int) -> relax.Expr:
        x = self.op.x(place)
        if self.op.dtype(place) in (self.dtype, "int8", "uint8"):
            return x
        return self.op.emit(R.astype(x, self.dtype))

    def optional(self, place: int) -> relax.Expr | None:
        return self.wide(place) if self.op.has(place) else None

    def state(self, place: int) -> relax.Expr | None:
        """Return an initial state as (directions, batch, hidden)."""
        state = self.optional(place)
        if state is None or not self.batch_first:
            return state
        return self.op.emit(R.permute_dims(state, [1, 0, 2]))

    def layer(self, cell: Cell) -> Layer:
        """Return the tensors, whose sizes are stated to agree where they are symbolic."""
        op, directions = self.op, len(cell.reverse)
        for name, tensor in (("X", self.x), ("W", self.w), ("R", self.r)):
            if len(dims_of(tensor)) != 3:
                raise InvalidModel(f"{name} has rank {len(dims_of(tensor))}, not 3")
        first, second, inputs = dims_of(self.x)
        inputs = known_one([inputs, dims_of(self.w)[2]])
        hidden = known_one([dims_of(self.r)[2], op.attr("hidden_size", dims_of(self.r)[2])])
        declared = op.attr("hidden_size", hidden)
        if is_static(hidden) and declared != hidden:
            raise InvalidModel(f"hidden_size {declared}, but the weights are for {hidden}")
        if not is_static(inputs) or not is_static(hidden):
            raise op.unsupported("weights of symbolic size")
        batch = first if self.batch_first else second
        lengths = None
        if op.has(4):
            op.state(4, [batch])
            time = second if self.batch_first else first
            lengths = at_most(op, 4, time, "the length of a sequence")
        if lengths is not None and op.dtype(4) != "int32":
            lengths = op.emit(R.astype(lengths, "int32"))

        def stated(x: relax.Expr | None, *dims: Dim) -> relax.Expr | None:
            return None if x is None else op.as_shape(x, [directions, *dims])

        rows = cell.gates * hidden
        return Layer(
            x=op.as_shape(self.x, [first, second, inputs]),
            w=op.as_shape(self.w, [directions, rows, inputs]),
            r=op.as_shape(self.r, [directions, rows, hidden]),
            bias=stated(self.optional(3), 2 * rows),
            lengths=lengths,
            h=stated(self.state(5), batch, hidden),
            c=stated(self.state(6), batch, hidden),
            peephole=stated(self.optional(7), 3 * hidden),
        )


def _outputs(op: Op, cell: Cell, inputs: _Inputs) -> list[Any]:
    """Emit the layer; return Y as ONNX has it: (T, D, B, H), or (B, T, D, H) with layout 1."""
    wanted = [bool(name) for name in op.node.output]
    y, h, c = recurrent(op, cell, inputs.layer(cell), with_sequence=wanted[0])
    states = [h] if c is None else [h, c]
    if cell.batch_first:
        states = [op.emit(R.permute_dims(state, [1, 0, 2])) for state in states]
    results = [y, *states][: len(wanted)]
    if op.dtype() == inputs.dtype:
        return results
    return [None if x is None else op.emit(R.astype(x, op.dtype())) for x in results]
