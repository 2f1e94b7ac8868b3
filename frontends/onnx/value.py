"""A tensor while it is imported: a constant, a symbolic integer value, or a Relax expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from frontends.dims import Dim, as_dim, dtype_of, is_static, plain_text
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.ratio import MANTISSA, Ratio
from frontends.storage_types import is_stored, to_container


@dataclass(eq=False)
class Value:
    """One tensor of the model.

    Exactly one of `array` (its elements are known), `symbolic` (a small tensor computed from sizes:
    a NumPy object array of dimension expressions, or of `Ratio` where the dtype is a float) and
    `expr` (computed at run time) is set at first; `expr` is filled in later when a run-time reader
    needs a known value.
    `dtype` is the ONNX type; an expression of a type that is only stored is a container of
    another dtype (`frontends.storage_types`).
    `of_sizes` marks an `expr` that is computed from sizes and constants alone.
    """

    name: str
    dtype: str
    array: np.ndarray | None = None
    symbolic: np.ndarray | None = None
    expr: relax.Expr | None = None
    of_sizes: bool = field(default=False, kw_only=True)
    _dims: tuple[Dim, ...] | None = field(default=None, init=False, repr=False)

    @staticmethod
    def constant(name: str, array: np.ndarray) -> Value:
        """Wrap a known tensor."""
        return Value(name, str(array.dtype), array=array)

    @staticmethod
    def of_dims(name: str, dims: np.ndarray, dtype: str = "int64") -> Value:
        """Wrap a tensor of dimension expressions; it is a constant if none is symbolic."""
        if all(is_static(dim) for dim in dims.flat):
            return Value.constant(name, dims.astype(dtype))
        return Value(name, dtype, symbolic=dims)

    @staticmethod
    def of_expr(name: str, expr: relax.Expr) -> Value:
        """Wrap a Relax tensor of known shape and dtype."""
        return Value(name, dtype_of(expr), expr=expr)

    @property
    def is_unused(self) -> bool:
        """Return whether this stands for an optional output without a name, never computed."""
        return self.array is None and self.symbolic is None and self.expr is None

    @property
    def depends_on_sizes_only(self) -> bool:
        """Tell whether no data decides its elements."""
        return self.of_sizes or self.array is not None or self.symbolic is not None

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the shape; symbolic dimensions are TIR expressions."""
        for known in (self.array, self.symbolic):
            if known is not None:
                return tuple(known.shape)
        if self.expr is None:
            raise InvalidModel("the operator does not give this output here", tensor=self.name)
        if self._dims is None:  # read once: each access to a Relax type makes new objects
            self._dims = tuple(as_dim(dim) for dim in self.expr.ty.shape.values)
        return self._dims

    @property
    def is_stored(self) -> bool:
        """Tell whether its elements are of a type that is only stored, such as int4 or float8."""
        return is_stored(self.dtype)

    @property
    def ndim(self) -> int:
        """Return the rank."""
        return len(self.shape)

    @staticmethod
    def of_ratios(name: str, ratios: np.ndarray, dtype: str) -> Value:
        """Wrap a tensor of ratios; it is a constant if no size is in them."""
        if all(ratio.is_static for ratio in ratios.flat):
            numbers = [float(ratio.fraction) for ratio in ratios.flat]
            return Value.constant(name, np.asarray(numbers, dtype).reshape(ratios.shape))
        return Value(name, dtype, symbolic=ratios)

    def dims(self) -> np.ndarray | None:
        """Return the elements as dimension expressions, or None if they are no known integers."""
        if self.symbolic is not None:
            return None if self.dtype in MANTISSA else self.symbolic
        if self.array is not None and self.array.dtype.kind in "iub":
            return dim_array([int(item) for item in self.array.flat], self.array.shape)
        return None

    def ratios(self) -> np.ndarray | None:
        """Return the elements of a float tensor as `Ratio`, or None if they are unknown.

        Raises:
            NotARatio: An element is not finite.
        """
        if self.dtype not in MANTISSA or self.array is None:
            return self.symbolic if self.dtype in MANTISSA else None
        return dim_array([Ratio.of_float(item) for item in self.array.flat], self.array.shape)

    def describe(self) -> str:
        """Return name, dtype and shape for an error message."""
        if self.is_unused:
            return f"{self.name}: not given"
        shape = ", ".join(plain_text(str(dim)) for dim in self.shape)
        kind = "constant " if self.array is not None else ""
        return f"{self.name}: {kind}{self.dtype}[{shape}]"


@dataclass(eq=False)
class SequenceValue(Value):
    """A sequence of known length; a sequence is a list while importing and leaves no code.

    `dtype` is that of the elements, each of which has a shape of its own.
    """

    items: tuple[Value, ...] = ()

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Refuse: only a tensor has a shape."""
        raise UnsupportedOperator("a sequence stands where a tensor is read", tensor=self.name)

    def describe(self) -> str:
        """Return name, element type and length for an error message."""
        return f"{self.name}: sequence of {len(self.items)} {self.dtype} tensors"


@dataclass(eq=False)
class EmptyOptional(Value):
    """An optional without element; one with an element is the element itself."""

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Refuse: there is no tensor."""
        raise InvalidModel("an optional without element is read", tensor=self.name)

    def describe(self) -> str:
        """Return the name for an error message."""
        return f"{self.name}: empty optional"


def tensors_of(values: Iterable[Value]) -> list[Value]:
    """Return the tensors that values consist of: a sequence gives its elements."""
    tensors: list[Value] = []
    for value in values:
        if isinstance(value, SequenceValue):
            tensors += tensors_of(value.items)
        elif not isinstance(value, EmptyOptional):
            tensors.append(value)
    return tensors


def with_tensors(values: Iterable[Value], tensors: Iterator[Value]) -> list[Value]:
    """Return values of the same structure made of other tensors, which are taken in order."""
    made: list[Value] = []
    for value in values:
        if isinstance(value, SequenceValue):
            items = tuple(with_tensors(value.items, tensors))
            made.append(SequenceValue(value.name, value.dtype, items=items))
        elif isinstance(value, EmptyOptional):
            made.append(value)
        else:
            made.append(next(tensors))
    return made


def structure_of(value: Value) -> object:
    """Return what two values must have in common to be results of two branches."""
    if isinstance(value, SequenceValue):
        return tuple(structure_of(item) for item in value.items)
    return "none" if isinstance(value, EmptyOptional) else "tensor"


def relax_constant(array: np.ndarray) -> relax.Expr:
    """Return a Relax constant of the array's own dtype (relax.const narrows 64-bit by default).

    Elements of a type that is only stored are given in their container.

    Raises:
        UnsupportedOperator: If the elements are strings or complex numbers.
    """
    if array.dtype.kind in "cOSU":
        kind = "complex numbers" if array.dtype.kind == "c" else "strings"
        raise UnsupportedOperator(f"tensors of {kind} are not supported")
    dense = to_container(array)
    if dense.dtype.kind not in "iufb":  # bfloat16, which NumPy cannot share
        return relax.const(tvm.runtime.tensor(np.ascontiguousarray(dense).reshape(array.shape)))
    constant = tvm.runtime.empty(array.shape, str(dense.dtype))
    np.from_dlpack(constant)[...] = dense
    return relax.const(constant)


def shared_array(constant: relax.Expr, array: np.ndarray) -> np.ndarray:
    """Return a constant's own memory in place of the array it was made of, where types allow it.

    A weight would else be in memory twice until the model is imported.
    """
    if array.dtype.isbuiltin != 1 or str(constant.value.dtype) != str(array.dtype):
        return array
    view = np.from_dlpack(constant.value)
    view.flags.writeable = False
    return view


def dim_array(dims: list[Any], shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return a NumPy object array of dimension expressions (NumPy must not look inside them)."""
    result = np.empty(len(dims), dtype=object)
    for place, dim in enumerate(dims):
        result[place] = dim
    return result.reshape(shape if shape is not None else (len(dims),))
