"""Recurrent layers: one matrix product for the inputs of all steps, one kernel for the time loop.

Nothing is unrolled over time, so the sequence length may be symbolic. Weights are laid out by
Relax operators, which fold where the weights are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.gate_activation import Activation
from frontends.computations.recurrent_cell import Cell, Operands
from frontends.computations.recurrent_kernel import recurrent_kernel

__all__ = ["Activation", "Cell", "Emitter", "Layer", "recurrent"]


class Emitter(Protocol):
    """What binds expressions: a converter's operator in either frontend."""

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an intermediate result."""

    def te(self, compute: Callable[..., Any], *tensors: relax.Expr, name: str) -> relax.Var:
        """Bind a call of the kernel that a tensor expression describes."""


@dataclass(frozen=True)
class Layer:
    """The tensors of a recurrent layer; all of one dtype, float32 or float64.

    Attributes:
        x: (T, B, I), or (B, T, I) where the cell says batch_first; T and B may be symbolic.
        w: Input weights (D, gates * H, I).
        r: Recurrent weights (D, gates * H, H).
        bias: (D, 2 * gates * H): the input's, then the recurrent ones.
        lengths: int32 (B,): the steps of each sequence; of one without any the last states are 0.
        h, c: Initial states (D, B, H), zero by default.
        peephole: (D, 3 * H) for the gates i, o, f of an LSTM.
    """

    x: relax.Expr
    w: relax.Expr
    r: relax.Expr
    bias: relax.Expr | None = None
    lengths: relax.Expr | None = None
    h: relax.Expr | None = None
    c: relax.Expr | None = None
    peephole: relax.Expr | None = None


def recurrent(
    emitter: Emitter, cell: Cell, layer: Layer, with_sequence: bool = True
) -> tuple[relax.Var | None, relax.Var, relax.Var | None]:
    """Emit a recurrent layer.

    Args:
        emitter: Binds expressions.
        cell: What the layer computes.
        layer: Its tensors.
        with_sequence: Whether the state of every step is wanted.

    Returns:
        The sequence (T, D, B, H), or (B, T, D, H) with batch_first, None if not wanted; the last
        state (D, B, H); the last cell state (D, B, H) of an LSTM, else None.
    """
    packer = _Packer(emitter, cell, layer)
    operands = Operands(
        x=packer.input_products(),
        weights=tuple(packer.recurrent_weights(gates) for gates in cell.products),
        bias_h=packer.reset_bias(),
        lengths=layer.lengths,
        h=layer.h,
        c=layer.c if cell.kind == "lstm" else None,
        peephole=packer.peephole(),
    )
    hidden = packer.hidden

    def compute(*tensors: Any) -> list[Any]:
        return recurrent_kernel(cell, operands.like(list(tensors)), hidden, with_sequence)

    made = emitter.te(compute, *operands.given(), name=cell.kind)
    results = iter(range(len(made.ty.fields)))

    def take() -> relax.Var:
        part = emitter.emit(relax.TupleGetItem(made, next(results)))
        if packer.padded == hidden:
            return part
        return emitter.emit(R.strided_slice(part, [part.ty.ndim - 1], [0], [hidden]))

    h = take()
    c = take() if cell.kind == "lstm" else None
    return (take() if with_sequence else None), h, c


class _Packer:
    """Lays the weights out as the kernel reads them; hidden units padded to whole slices."""

    def __init__(self, emitter: Emitter, cell: Cell, layer: Layer) -> None:
        self.emitter, self.cell, self.layer = emitter, cell, layer
        self.directions, _, self.hidden = (int(d) for d in layer.r.ty.shape.values)
        self.width = cell.width(self.hidden)
        self.padded = -(-self.hidden // self.width) * self.width
        self.dtype = str(layer.x.ty.dtype.dtype)

    def input_products(self) -> relax.Expr:
        """Return x W^T with all biases: the leading axes of x, then (D, gates, P)."""
        shape = list(self.layer.x.ty.shape.values)
        columns = self.directions * self.cell.gates * self.padded
        inputs = int(shape[2])
        w = self._units(self.layer.w, 1, self.cell.gates)
        w = self._reshape(w, [columns, inputs])
        rows = self._reshape(self.layer.x, [shape[0] * shape[1], inputs])
        product = self.emitter.emit(R.matmul(rows, self.emitter.emit(R.permute_dims(w, [1, 0]))))
        bias = self._input_bias()
        if bias is not None:
            product = self.emitter.emit(R.add(product, self._reshape(bias, [columns])))
        form = [*shape[:2], self.directions, self.cell.gates, self.padded]
        return self._reshape(product, form)

    def recurrent_weights(self, gates: Sequence[int]) -> relax.Expr:
        """Return the weights of some gates as (D, P / width, H, gates, width)."""
        r = self._units(self.layer.r, 1, self.cell.gates)  # (D, gates, P, H)
        if len(gates) < self.cell.gates:
            r = self.emitter.emit(R.strided_slice(r, [1], [gates[0]], [gates[-1] + 1]))
        slices = self.padded // self.width
        form = [self.directions, len(gates), slices, self.width, self.hidden]
        return self.emitter.emit(R.permute_dims(self._reshape(r, form), [0, 2, 4, 1, 3]))

    def reset_bias(self) -> relax.Expr | None:
        """Return the bias inside the reset gate of a GRU with linear_before_reset: (D, P)."""
        if self.cell.kind != "gru" or not self.cell.linear_before_reset:
            return None
        if self.layer.bias is None:
            return relax.const(np.zeros((self.directions, self.padded), self.dtype))
        bias = self._units(self.layer.bias, 1, 6)
        last = self.emitter.emit(R.strided_slice(bias, [1], [5], [6]))
        return self._reshape(last, [self.directions, self.padded])

    def peephole(self) -> relax.Expr | None:
        """Return the peephole weights as (D, 3, P)."""
        if self.layer.peephole is None or self.cell.kind != "lstm":
            return None
        return self._units(self.layer.peephole, 1, 3)

    def _input_bias(self) -> relax.Expr | None:
        """Return the biases that are simply added: (D, gates, P)."""
        if self.layer.bias is None:
            return None
        gates, emit = self.cell.gates, self.emitter.emit
        bias = self._units(self.layer.bias, 1, 2 * gates)  # (D, 2 gates, P)
        inputs = emit(R.strided_slice(bias, [1], [0], [gates]))
        states = emit(R.strided_slice(bias, [1], [gates], [2 * gates]))
        if self.cell.kind == "gru" and self.cell.linear_before_reset:
            kept = emit(R.strided_slice(states, [1], [0], [2]))
            zero = self._zeros([self.directions, 1, self.padded])
            states = emit(R.concat([kept, zero], 1))
        return emit(R.add(inputs, states))

    def _units(self, x: relax.Expr, axis: int, groups: int) -> relax.Expr:
        """Split an axis of groups * H into (groups, P), zero past unit H."""
        shape = [int(d) for d in x.ty.shape.values]
        form = [*shape[:axis], groups, self.hidden, *shape[axis + 1 :]]
        split = self._reshape(x, form)
        if self.padded == self.hidden:
            return split
        # A concatenation folds at any size: it is as large as its constant operands.
        zeros = self._zeros([*form[: axis + 1], self.padded - self.hidden, *form[axis + 2 :]])
        return self.emitter.emit(R.concat([split, zeros], axis + 1))

    def _reshape(self, x: relax.Expr, shape: Sequence[Any]) -> relax.Expr:
        return self.emitter.emit(exact_reshape(x, relax.ShapeExpr(list(shape))))

    def _zeros(self, shape: Sequence[int]) -> relax.Expr:
        return relax.const(tvm.runtime.tensor(np.zeros(shape, self.dtype)))
