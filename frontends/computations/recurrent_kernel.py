"""One kernel for the time loop of an RNN, GRU or LSTM.

Steps run in order. Within a step each slice of `width` hidden units is independent: its products
with the recurrent weights stay in registers, and the cell is computed while they are there. The
state has two copies, so that a slice never overwrites what another one still reads.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.tirx import IntImm, Stmt

from frontends.computations.gate_activation import limit
from frontends.computations.loop_nest import (
    CORES,
    LANES,
    UNROLL,
    block,
    index,
    load,
    local,
    loop,
    store,
)
from frontends.computations.recurrent_cell import VECTOR, Cell, Operands, Place, cell_statement

# Accumulators of one register tile, in vectors of eight float32: 12 of AVX2's 16 registers.
_TILE_VECTORS = 12


def recurrent_kernel(
    cell: Cell, operands: Operands, hidden: int, with_sequence: bool
) -> list[te.Tensor]:
    """Return the tensors that the time loop writes.

    Args:
        cell: What to compute.
        operands: TE tensors.
        hidden: H, the number of hidden units before padding.
        with_sequence: Whether the hidden state of every step is wanted.

    Returns:
        The last h (D, B, P); then c (D, B, P) of an LSTM; then, if wanted, the sequence:
        (T, D, B, P), or (B, T, D, P) with `batch_first`; then scratch tensors.
    """
    time, batch = (operands.x.shape[k] for k in ((1, 0) if cell.batch_first else (0, 1)))
    directions, padded = len(cell.reverse), int(operands.x.shape[4])
    state = (directions, batch, padded)
    shapes: dict[str, tuple[Any, ...]] = {"h": state}
    if cell.kind == "lstm":
        shapes["c"] = state
    if with_sequence:
        first = (batch, time, directions) if cell.batch_first else (time, directions, batch)
        shapes["y"] = (*first, padded)
    shapes["states"] = (2, *state)
    if len(cell.products) == 2:
        shapes["update"], shapes["reset"] = state, state
    if cell.quantize_state:
        shapes["rounded"] = state
    dtype = str(operands.x.dtype)

    def body(ins: list[Any], outs: list[Any]) -> Stmt:
        results = dict(zip(shapes, outs, strict=True))
        return _Loops(cell, operands.like(list(ins)), results, hidden, dtype).statement()

    made = te.extern(
        list(shapes.values()),
        operands.given(),
        body,
        dtype=[dtype] * len(shapes),
        name=f"{cell.kind}_steps",
    )
    return list(made)


class _Loops:
    """Builds the statement; its methods go from the outermost loop inward."""

    def __init__(
        self, cell: Cell, ins: Operands, outs: dict[str, Any], hidden: int, dtype: str
    ) -> None:
        self.cell, self.ins, self.outs, self.hidden, self.dtype = cell, ins, outs, hidden, dtype
        time, batch = (1, 0) if cell.batch_first else (0, 1)
        self.time, self.batch = ins.x.shape[time], ins.x.shape[batch]
        self.width = int(ins.weights[0].shape[4])
        self.padded = int(ins.x.shape[4])

    def const(self, value: float) -> Any:
        return tirx.const(value, self.dtype)

    def statement(self) -> Stmt:
        steps = loop(self.time, self.step, name="step")
        return block([self.begin(), steps, self.end()])

    # Around the time loop ---------------------------------------------------------------------

    def over_state(self, body: Any) -> Stmt:
        """Loop over directions, batch and hidden units."""
        return loop(
            len(self.cell.reverse),
            lambda d: loop(
                self.batch,
                lambda b: loop(self.padded, lambda j: body(d, b, j), name="j"),
                name="b",
            ),
            name="d",
        )

    def begin(self) -> Stmt:
        def initial(source: Any, d: Any, b: Any, j: Any) -> Any:
            if source is None:
                return self.const(0.0)
            if self.padded == self.hidden:
                return load(source, d, b, j)
            inside = tirx.min(j, index(self.hidden - 1))
            return tirx.Select(j < index(self.hidden), load(source, d, b, inside), self.const(0.0))

        def started(source: Any, d: Any, b: Any, j: Any) -> Any:
            value = initial(source, d, b, j)
            if source is None or self.ins.lengths is None:
                return value
            # The last state of a sequence without steps is 0, whatever it was to begin with.
            return tirx.Select(load(self.ins.lengths, b) > 0, value, self.const(0.0))

        def fill(d: Any, b: Any, j: Any) -> Stmt:
            stores = [store(self.outs["states"], started(self.ins.h, d, b, j), 0, d, b, j)]
            if "c" in self.outs:
                stores.append(store(self.outs["c"], started(self.ins.c, d, b, j), d, b, j))
            return block(stores)

        return self.over_state(fill)

    def end(self) -> Stmt:
        last = tirx.indexmod(self.time, index(2))
        states = self.outs["states"]
        return self.over_state(
            lambda d, b, j: store(self.outs["h"], load(states, last, d, b, j), d, b, j)
        )

    # One step ---------------------------------------------------------------------------------

    def step(self, step: Any) -> Stmt:
        parity = tirx.indexmod(step, index(2))
        statements = []
        if self.cell.quantize_state:
            directions = len(self.cell.reverse)
            statements.append(loop(directions, lambda d: self.round_state(parity, d), name="d"))
        for number in range(len(self.cell.products)):
            for first, count in self.groups():
                statements.append(self.slices(step, parity, number, first, count))
        return block(statements)

    def groups(self) -> list[tuple[int, int]]:
        """Return runs (first, count) of directions with the same activations."""
        if len(set(self.cell.activations)) == 1:
            return [(0, len(self.cell.reverse))]
        return [(d, 1) for d in range(len(self.cell.reverse))]

    def round_state(self, parity: Any, d: Any) -> Stmt:
        """Round the state to 8 bits as DynamicQuantizeLinear does, and back."""
        low, high = (local((1,), self.dtype, name) for name in ("low", "high"))
        states, rounded = self.outs["states"], self.outs["rounded"]

        def widen(b: Any, j: Any) -> Stmt:
            value = load(states, parity, d, b, j)
            return block(
                [
                    store(low, tirx.min(load(low, 0), value), 0),
                    store(high, tirx.max(load(high, 0), value), 0),
                ]
            )

        scale, zero, code = (local((1,), self.dtype, name) for name in ("scale", "zero", "code"))
        spread = load(high, 0) - load(low, 0)

        def convert(b: Any, j: Any) -> Stmt:
            ratio = tirx.nearbyint(load(states, parity, d, b, j) / load(scale, 0))
            value = (limit(load(code, 0), 0.0, 255.0) - load(zero, 0)) * load(scale, 0)
            return block(
                [store(code, ratio + load(zero, 0), 0), store(rounded, value, d, b, j)], (code,)
            )

        def over(body: Any) -> Stmt:
            return loop(
                self.batch, lambda b: loop(self.hidden, lambda j: body(b, j), name="j"), name="b"
            )

        some = spread > self.const(0.0)
        offset = limit(self.const(0.0) - load(low, 0) / load(scale, 0), 0.0, 255.0)
        return block(
            [
                store(low, self.const(0.0), 0),
                store(high, self.const(0.0), 0),
                over(widen),
                store(scale, tirx.Select(some, spread / self.const(255.0), self.const(1.0)), 0),
                store(zero, tirx.nearbyint(offset), 0),
                over(convert),
            ],
            (low, high, scale, zero),
        )

    def slices(self, step: Any, parity: Any, number: int, first: int, count: int) -> Stmt:
        """Loop over the slices of hidden units, and in each over tiles of batch rows."""
        gates = self.cell.products[number]
        slices = self.padded // self.width
        rows, static = self.rows_per_tile(len(gates))
        work = self.hidden * self.width * len(gates) * (static or 1)

        def body(both: Any) -> Stmt:
            if count > 1:
                d, s = tirx.indexdiv(both, index(slices)), tirx.indexmod(both, index(slices))
            else:
                d, s = index(first), both
            tile = _Tile(self, step, parity, number, first, d, s)
            whole = tirx.indexdiv(index(self.batch), index(rows))
            statements = [loop(whole, lambda t: tile.statement(t * index(rows), rows), name="tile")]
            if rows > 1 and (static is None or static % rows):
                left = tirx.indexmod(index(self.batch), index(rows))
                start = whole * index(rows)
                statements.append(loop(left, lambda t: tile.statement(start + t, 1), name="row"))
            return block(statements)

        return loop(count * slices, body, run_as=CORES, work=work, name="slice")

    def rows_per_tile(self, gates: int) -> tuple[int, int | None]:
        """Return how many batch rows share a load of weights, and the batch size if static."""
        most = max(1, _TILE_VECTORS // (gates * self.width // VECTOR))
        if not isinstance(self.batch, IntImm | int):
            return most, None
        batch = int(self.batch)
        choices = range(1, max(1, min(most, batch)) + 1)
        return min(choices, key=lambda rows: (batch // rows + batch % rows, rows)), batch

    def position(self, step: Any, d: Any, b: Any) -> tuple[Any, Any]:
        """Return which element of the sequence a step reads, and whether it lies inside."""
        inside, last = None, index(self.time) - index(1)
        if self.ins.lengths is not None:
            length = load(self.ins.lengths, b).astype("int64")
            inside, last = step < length, length - index(1)
        reverse = self.cell.reverse
        if not any(reverse):
            return step, inside
        backward = last - step if inside is None else tirx.Select(inside, last - step, step)
        if all(reverse):
            return backward, inside
        return tirx.Select(d == index(reverse.index(True)), backward, step), inside


class _Tile:
    """The products and cells of some batch rows for one slice of one direction."""

    def __init__(
        self, loops: _Loops, step: Any, parity: Any, number: int, first: int, d: Any, s: Any
    ) -> None:
        self.loops, self.step, self.parity, self.d, self.s = loops, step, parity, d, s
        self.number, self.gates = number, loops.cell.products[number]
        self.functions = loops.cell.activations[first]
        self.ins, self.outs, self.cell = loops.ins, loops.outs, loops.cell

    def statement(self, first_row: Any, rows: int) -> Stmt:
        """Return the tile of batch rows from `first_row` on."""
        loops, gates, width = self.loops, len(self.gates), self.loops.width
        # Products are copied out of the accumulators, which unrolled indices keep in registers.
        sums, copies = (
            local((rows, gates, width), loops.dtype, name) for name in ("sums", "products")
        )

        def each(body: Any) -> Stmt:
            return loop(
                rows,
                lambda r: loop(
                    gates,
                    lambda g: loop(width, lambda v: body(r, g, v), LANES, name="lane"),
                    UNROLL,
                    name="gate",
                ),
                UNROLL,
                name="r",
            )

        weights = self.ins.weights[self.number]

        def add(k: Any) -> Stmt:
            return each(
                lambda r, g, v: store(
                    sums,
                    load(sums, r, g, v)
                    + self.factor(first_row + r, k) * load(weights, self.d, self.s, k, g, v),
                    r,
                    g,
                    v,
                )
            )

        return block(
            [
                each(lambda r, g, v: store(sums, loops.const(0.0), r, g, v)),
                loop(loops.hidden, add, name="k"),
                each(lambda r, g, v: store(copies, load(sums, r, g, v), r, g, v)),
                loop(rows, lambda r: self.cells(copies, r, first_row + r), name="r"),
            ],
            (sums, copies),
        )

    def factor(self, b: Any, k: Any) -> Any:
        """Return the operand that meets the recurrent weights."""
        if self.number == 1:
            return load(self.outs["reset"], self.d, b, k)
        if self.cell.quantize_state:
            return load(self.outs["rounded"], self.d, b, k)
        return load(self.outs["states"], self.parity, self.d, b, k)

    def cells(self, products: Any, row: Any, b: Any) -> Stmt:
        """Return the gates and the cell of one batch row."""
        position, inside = self.loops.position(self.step, self.d, b)
        first = (b, position) if self.cell.batch_first else (position, b)
        y = (b, position, self.d) if self.cell.batch_first else (position, self.d, b)
        where = Place(self.d, b, self.s, row, (*first, self.d), y, self.parity, inside)
        return cell_statement(
            self.cell, self.functions, self.ins, self.outs, where, products, self.number
        )
