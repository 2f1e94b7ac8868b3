"""What a converter works with: the Relax block being built and the current ATen node."""

from __future__ import annotations

from typing import Any

import torch
import tvm
from tvm import relax
from tvm.sym import Analyzer

from frontends.errors import UnsupportedOperator
from frontends.torch.symbolic_shapes import Size, SymbolTable

# What an ATen argument becomes: a Relax expression, a constant still held by torch, or a scalar.
Value = Any

_NUMPY_DTYPES = {
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
}


class GraphBuilder:
    """Emits Relax operators for one ATen node after the other.

    Attributes:
        node: The node being converted.
    """

    def __init__(self, block: relax.BlockBuilder, symbols: SymbolTable) -> None:
        """Build into `block`, whose function and dataflow scopes the importer opens."""
        self._block = block
        self._symbols = symbols
        self._constants: dict[int, tuple[torch.Tensor, relax.Expr]] = {}
        self.node: torch.fx.Node

    # -- the result the node must have, as torch inferred it

    @property
    def dtype(self) -> str:
        """The dtype of the node's (first) result, after torch's type promotion."""
        return dtype_name(self._fake.dtype)

    @property
    def result_shape(self) -> list[Size]:
        """The shape of the node's (first) result."""
        return self._symbols.shape(self._fake.shape)

    @property
    def _fake(self) -> torch.Tensor:
        value = self.node.meta["val"]
        return value[0] if isinstance(value, list | tuple) else value

    # -- operands

    def tensor(self, value: Value, dtype: str | None = None) -> relax.Expr:
        """Return `value` as a Relax tensor, cast to `dtype` if one is given.

        A Python scalar becomes a rank-0 constant of `dtype` (of the result's dtype by default).
        """
        if isinstance(value, torch.Tensor):
            if dtype is not None and value.numel() == 1 and value.ndim == 0:
                return relax.const(value.item(), dtype)
            expr = self._constant(value)
        elif isinstance(value, bool | int | float):
            return relax.const(value, dtype or self.dtype)
        elif isinstance(value, torch.SymInt):
            raise self.unsupported("a symbolic size used as a tensor's value")
        else:
            expr = value
        return expr if dtype is None or expr.ty.dtype == dtype else self.cast(expr, dtype)

    def operands(self, *values: Value) -> tuple[relax.Expr, ...]:
        """Return each value as a tensor of the result's dtype: how arithmetic promotes."""
        return tuple(self.tensor(value, self.dtype) for value in values)

    def _constant(self, value: torch.Tensor) -> relax.Expr:
        # The tensor is kept beside its constant: an id is unique only while its object lives.
        if id(value) not in self._constants:
            data = value.detach().cpu().contiguous()
            if data.dtype in _NUMPY_DTYPES:
                expr = relax.const(data.numpy(), dtype_name(data.dtype))
            else:  # bfloat16 and the float8 types have no NumPy counterpart
                expr = relax.const(tvm.runtime.from_dlpack(data.clone()))
            self._constants[id(value)] = (value, expr)
        return self._constants[id(value)][1]

    # -- building

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind `expr` to a new variable and return it; the variable knows its type."""
        return self._block.emit(expr)

    def cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        """Cast `x`; float to bool compares with zero, as torch does."""
        if dtype == "bool":
            return self.emit(relax.op.not_equal(x, relax.const(0, x.ty.dtype)))
        return self.emit(relax.op.astype(x, dtype))

    def reshape(self, x: relax.Expr, shape: list[Size]) -> relax.Expr:
        """Reshape `x`, or return it as it is where the shape is the same."""
        if same_shape(self.shape(x), shape):
            return x
        return self.emit(relax.op.reshape(x, shape))

    def permute(self, x: relax.Expr, axes: list[int]) -> relax.Expr:
        """Permute the axes of `x`; an identity costs nothing."""
        if axes == list(range(len(axes))):
            return x
        return self.emit(relax.op.permute_dims(x, axes))

    def slice_axis(
        self, x: relax.Expr, axis: int, begin: Size, end: Size, step: int = 1
    ) -> relax.Expr:
        """Take `begin:end:step` of one axis; the bounds must lie within it."""
        return self.emit(
            relax.op.strided_slice(x, [axis], [begin], [end], [step], assume_inbound=True)
        )

    def fit(self, x: relax.Expr) -> relax.Expr:
        """Cut trailing elements so that `x` has the node's result shape.

        Rounding rules differ at a window's far edge (`ceil_mode`); the extra windows are last.
        """
        for axis, (have, want) in enumerate(zip(self.shape(x), self.result_shape, strict=True)):
            if isinstance(have, int) and isinstance(want, int) and have > want:
                x = self.slice_axis(x, axis, 0, want)
        return x

    def shape(self, x: relax.Expr) -> list[Size]:
        """Return the shape of `x`: ints where static, TIR expressions elsewhere."""
        return [int(d) if isinstance(d, tvm.tirx.IntImm) else d for d in x.ty.shape.values]

    def static_shape(self, x: relax.Expr) -> list[int]:
        """Return the shape of `x`, all static.

        Raises:
            UnsupportedOperator: If a dimension is symbolic.
        """
        return [self.static(d) for d in self.shape(x)]

    def static(self, size: Size) -> int:
        """Return a size that must be known.

        Raises:
            UnsupportedOperator: If it is symbolic.
        """
        if isinstance(size, int):
            return size
        raise self.unsupported(f"the symbolic size {size}")

    def size(self, value: Any) -> Size:
        """Return an int or torch.SymInt argument as a Relax size."""
        return self._symbols.size(value)

    def axis(self, axis: int, rank: int) -> int:
        """Return a possibly negative axis as a non-negative one (torch treats rank 0 as 1)."""
        return axis % max(rank, 1)

    def axes(self, axes: Any, rank: int) -> list[int]:
        """Return the axes of a reduction; None and an empty list mean all."""
        if axes is None or axes == []:
            return list(range(rank))
        return sorted(self.axis(a, rank) for a in ([axes] if isinstance(axes, int) else axes))

    def unsupported(self, what: str) -> UnsupportedOperator:
        """Return the error for a form of the current operator that has no translation."""
        return UnsupportedOperator(
            f"{self.node.target} with {what} is not supported{source_line(self.node)}",
            node=self.node.name,
        )


def dtype_name(dtype: torch.dtype) -> str:
    """Return TVM's name of a torch dtype."""
    return str(dtype).removeprefix("torch.")


def same_shape(left: list[Size], right: list[Size]) -> bool:
    """Return whether two shapes are equal for certain."""
    return len(left) == len(right) and all(
        a == b if isinstance(a, int) and isinstance(b, int) else _equal(a, b)
        for a, b in zip(left, right, strict=True)
    )


def _equal(left: Size, right: Size) -> bool:
    return Analyzer().can_prove_equal(left, right)


def source_line(node: torch.fx.Node) -> str:
    """Return ' (file:line: code)' of the user's line that made `node`, or ''."""
    trace = (node.stack_trace or "").strip().splitlines()
    files = [i for i, line in enumerate(trace) if line.strip().startswith("File ")]
    if not files:
        return ""
    place = trace[files[-1]].strip().split(", ")
    code = trace[files[-1] + 1].strip() if files[-1] + 1 < len(trace) else ""
    file = place[0].removeprefix("File ").strip('"')
    return f" ({file}:{place[1].removeprefix('line ')}: {code})"
