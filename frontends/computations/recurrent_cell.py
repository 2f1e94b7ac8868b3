"""The equations of the recurrent cells, for one slice of hidden units.

Source: ONNX operators RNN, GRU, LSTM (equations of the default activations); J. Schmidhuber and
S. Hochreiter, Long Short-Term Memory, 1997; F. Gers and J. Schmidhuber, Recurrent Nets that Time
and Count (peepholes), 2000; K. Cho et al., 2014 (GRU).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import Stmt

from frontends.computations.gate_activation import Activation, limit
from frontends.computations.loop_nest import LANES, block, index, load, local, loop, store

VECTOR = 8


@dataclass(frozen=True)
class Cell:
    """What a recurrent layer computes.

    Attributes:
        kind: "rnn", "gru" or "lstm"; gates are in ONNX's order (z r h; i o f c).
        reverse: For each direction, whether it walks the sequence from its end.
        activations: For each direction its functions: (f), (f, g) or (f, g, h).
        clip: Limit of every activation's argument, None for no limit.
        input_forget: LSTM: the forget gate is one minus the input gate.
        linear_before_reset: GRU: the reset gate multiplies the product, not the state.
        batch_first: Whether x and y have the batch as first axis, time as second.
        quantize_state: Whether the state is rounded to 8 bits, with a scale of its own for each
            step and direction, before it meets the weights (com.microsoft.DynamicQuantizeLSTM).
    """

    kind: str
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False
    batch_first: bool = False
    quantize_state: bool = False

    @property
    def gates(self) -> int:
        """Return the number of gates."""
        return {"rnn": 1, "gru": 3, "lstm": 4}[self.kind]

    @property
    def products(self) -> tuple[tuple[int, ...], ...]:
        """Return which gates each product of a step yields: the second one needs the first."""
        if self.kind == "gru" and not self.linear_before_reset:
            return ((0, 1), (2,))
        return (tuple(range(self.gates)),)

    def width(self, hidden: int) -> int:
        """Return how many hidden units a slice has: enough vectors to hide the add's latency."""
        widest = 2 * VECTOR if self.kind == "gru" else {"rnn": 4, "lstm": 1}[self.kind] * VECTOR
        while widest > VECTOR and widest >= 2 * hidden:
            widest //= 2
        return widest


@dataclass(frozen=True)
class Operands:
    """The kernel's tensors; H is the number of hidden units, padded to P in whole slices.

    Attributes:
        x: Input products with all biases but `bias_h`: (T, B, D, gates, P), or (B, T, ...).
        weights: For each product (D, P / width, H, its gates, width).
        bias_h: (D, P): GRU with linear_before_reset: the recurrent bias of its third gate.
        lengths: (B,) int32.
        h, c: Initial states (D, B, H).
        peephole: (D, 3, P) for gates i, o, f.
    """

    x: Any
    weights: tuple[Any, ...]
    bias_h: Any = None
    lengths: Any = None
    h: Any = None
    c: Any = None
    peephole: Any = None

    def given(self) -> list[Any]:
        """Return the tensors that are there, in order."""
        every = [self.x, *self.weights, self.bias_h, self.lengths, self.h, self.c, self.peephole]
        return [tensor for tensor in every if tensor is not None]

    def like(self, tensors: list[Any]) -> Operands:
        """Return operands with `tensors` in the places of the given ones."""
        rest = iter(tensors)

        def take(old: Any) -> Any:
            return None if old is None else next(rest)

        return Operands(
            take(self.x),
            tuple(take(weight) for weight in self.weights),
            *(take(old) for old in (self.bias_h, self.lengths, self.h, self.c, self.peephole)),
        )


@dataclass(frozen=True)
class Place:
    """Where a cell stands.

    Attributes:
        d, b: Direction and batch row.
        slice: Which slice of hidden units.
        row: The batch row's number in the tile of products.
        x: Indices of the input product before gate and unit.
        y: Indices of the sequence before the unit.
        parity: Which of the two copies holds the old state.
        inside: Whether the step lies inside the row's sequence; None where all do.
    """

    d: Any
    b: Any
    slice: Any
    row: Any
    x: tuple[Any, ...]
    y: tuple[Any, ...]
    parity: Any
    inside: Any


def cell_statement(
    cell: Cell,
    functions: tuple[Activation, ...],
    ins: Operands,
    outs: dict[str, Any],
    place: Place,
    products: Any,
    number: int,
) -> Stmt:
    """Return the statement that turns products into gates and writes the new state.

    Args:
        cell: The layer.
        functions: The activations of the direction.
        ins: The kernel's operands, as buffers.
        outs: The kernel's results by name, as buffers.
        place: Where the cell stands.
        products: Buffer (rows, gates, width): the products with the recurrent weights.
        number: Which of `cell.products` they are.
    """
    made = _CellStatements(cell, functions, ins, outs, place, products, number)
    getattr(made, cell.kind)()
    return block(made.statements, (made.values,))


class _CellStatements:
    """Collects one vector statement after another; single ones keep expressions shallow."""

    def __init__(
        self,
        cell: Cell,
        functions: tuple[Activation, ...],
        ins: Operands,
        outs: dict[str, Any],
        place: Place,
        products: Any,
        number: int,
    ) -> None:
        self.cell, self.functions, self.ins, self.outs = cell, functions, ins, outs
        self.place, self.products, self.number = place, products, number
        self.width = int(products.shape[2])
        self.dtype = str(products.dtype)
        self.values = local((cell.gates + 1, self.width), self.dtype, "values")
        self.statements: list[Stmt] = []

    # Cells ------------------------------------------------------------------------------------

    def rnn(self) -> None:
        """H = f(x + h R)."""
        self.activate(0, 0)
        self.finish(0)

    def gru(self) -> None:
        """H = (1 - z) g(x + r-gated h R) + z h."""
        if self.number == 0:
            self.activate(0, 0)
            self.activate(1, 0)
        if self.cell.linear_before_reset:
            bias, d = self.ins.bias_h, self.place.d

            def gated(lane: Any) -> Any:
                inner = self.product(2, lane) + load(bias, d, self.unit(lane))
                return self.x(2, lane) + self.value(1, lane) * inner

            self.activate(2, 1, gated)
        elif self.number == 0:
            where = (self.place.d, self.place.b)
            self.assign(self.outs["update"], lambda lane: self.value(0, lane), *where)
            self.assign(
                self.outs["reset"], lambda lane: self.value(1, lane) * self.old(lane), *where
            )
            return
        else:
            update, where = self.outs["update"], (self.place.d, self.place.b)
            self.assign(self.values, lambda lane: load(update, *where, self.unit(lane)), 0)
            self.activate(2, 1)
        one = tirx.const(1.0, self.dtype)

        def mixed(lane: Any) -> Any:
            z = self.value(0, lane)
            return (one - z) * self.value(2, lane) + z * self.old(lane)

        self.assign(self.values, mixed, 3)
        self.finish(3)

    def lstm(self) -> None:
        """C = f c + i g; H = o h(C); gates i, o, f, c."""
        where = (self.place.d, self.place.b)
        c, one = self.outs["c"], tirx.const(1.0, self.dtype)

        def old_c(lane: Any) -> Any:
            return load(c, *where, self.unit(lane))

        self.activate(0, 0, lambda lane: self.pre(0, lane, 0, old_c(lane)))
        if self.cell.input_forget:
            self.assign(self.values, lambda lane: one - self.value(0, lane), 2)
        else:
            self.activate(2, 0, lambda lane: self.pre(2, lane, 2, old_c(lane)))
        self.activate(3, 1)

        def new_c(lane: Any) -> Any:
            kept = self.value(2, lane) * old_c(lane)
            return kept + self.value(0, lane) * self.value(3, lane)

        self.assign(self.values, new_c, 4)
        self.activate(1, 0, lambda lane: self.pre(1, lane, 1, self.value(4, lane)))
        self.assign(self.values, lambda lane: self.functions[2](self.value(4, lane)), 3)
        self.assign(self.values, lambda lane: self.value(1, lane) * self.value(3, lane), 0)
        self.assign(c, lambda lane: self.chosen(4, lane, old_c(lane)), *where)
        self.finish(0)

    def finish(self, slot: int) -> None:
        """Write the new state and the sequence; past a sequence's end, the old one and zero."""
        new, where = index(1) - self.place.parity, (self.place.d, self.place.b)
        self.assign(
            self.outs["states"], lambda lane: self.chosen(slot, lane, self.old(lane)), new, *where
        )
        if "y" in self.outs:
            zero = tirx.const(0.0, self.dtype)
            self.assign(self.outs["y"], lambda lane: self.chosen(slot, lane, zero), *self.place.y)

    # Statements and expressions ---------------------------------------------------------------

    def assign(self, buffer: Any, value: Callable[[Any], Any], *where: Any) -> None:
        """Add `buffer[where, unit] = value(lane)`; `values` are indexed by the lane itself."""

        def one(lane: Any) -> Stmt:
            last = lane if buffer is self.values else self.unit(lane)
            return store(buffer, value(lane), *where, last)

        self.statements.append(loop(self.width, one, LANES, name="lane"))

    def activate(
        self, gate: int, function: int, argument: Callable[[Any], Any] | None = None
    ) -> None:
        """Add `values[gate] = f(argument)`, by default of the gate's whole sum."""

        def value(lane: Any) -> Any:
            x = self.pre(gate, lane) if argument is None else argument(lane)
            if self.cell.clip is not None:
                x = limit(x, -self.cell.clip, self.cell.clip)
            return self.functions[function](x)

        self.assign(self.values, value, gate)

    def unit(self, lane: Any) -> Any:
        return self.place.slice * index(self.width) + lane

    def value(self, slot: int, lane: Any) -> Any:
        return load(self.values, slot, lane)

    def old(self, lane: Any) -> Any:
        place = self.place
        return load(self.outs["states"], place.parity, place.d, place.b, self.unit(lane))

    def x(self, gate: int, lane: Any) -> Any:
        return load(self.ins.x, *self.place.x, gate, self.unit(lane))

    def product(self, gate: int, lane: Any) -> Any:
        slot = self.cell.products[self.number].index(gate)
        return load(self.products, self.place.row, slot, lane)

    def pre(self, gate: int, lane: Any, peephole: int = 0, c: Any = None) -> Any:
        """Return a gate's sum, with the cell state seen through its peephole."""
        total = self.x(gate, lane) + self.product(gate, lane)
        if c is None or self.ins.peephole is None:
            return total
        return total + c * load(self.ins.peephole, self.place.d, peephole, self.unit(lane))

    def chosen(self, slot: int, lane: Any, otherwise: Any) -> Any:
        value = self.value(slot, lane)
        inside = self.place.inside
        return value if inside is None else tirx.Select(inside, value, otherwise)
