"""What a converter sees of one node: its inputs, attributes, and the ways to emit Relax code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax

from frontends.dims import Dim, DimArithmetic, dims_of, is_static, prim
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.function_body import FunctionBody
from frontends.onnx.sparse_tensors import dense_array
from frontends.onnx.value import Value, relax_constant

if TYPE_CHECKING:
    from frontends.onnx.importer import GraphBuilder


class Op:
    """One node while it is converted.

    Attributes:
        node: The ONNX node.
        opset: Opset version of the node's domain.
        inputs: Its input values; None where an optional input is left out.
        arithmetic: Arithmetic on symbolic dimensions.
        builder: Builds the function that the node belongs to; control flow needs it.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        node: onnx.NodeProto,
        opset: int,
        inputs: Sequence[Value | None],
    ) -> None:
        self.builder = builder
        self.node, self.opset, self.inputs = node, opset, list(inputs)
        self.arithmetic: DimArithmetic = builder.arithmetic
        self._attributes = {attribute.name: attribute for attribute in node.attribute}

    # Inputs -----------------------------------------------------------------------------------

    def has(self, place: int) -> bool:
        """Tell whether input `place` is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def value(self, place: int) -> Value:
        """Return input `place`, which must be given."""
        value = self.inputs[place] if place < len(self.inputs) else None
        if value is None:
            raise InvalidModel(f"input {place} is missing")
        return value

    def x(self, place: int = 0) -> relax.Expr:
        """Return input `place` as Relax tensor."""
        return self.builder.expression(self.value(place))

    def shape(self, place: int = 0) -> tuple[Dim, ...]:
        """Return the shape of input `place`; every dimension is an int or a TIR expression."""
        return self.value(place).shape

    def ndim(self, place: int = 0) -> int:
        """Return the rank of input `place`."""
        return self.value(place).ndim

    def dtype(self, place: int = 0) -> str:
        """Return the dtype of input `place`."""
        return self.value(place).dtype

    def constant(self, place: int) -> np.ndarray | None:
        """Return input `place` as array if its elements are known, else None."""
        return self.inputs[place].array if self.has(place) else None  # type: ignore[union-attr]

    def require_constant(self, place: int, what: str) -> np.ndarray:
        """Return the known elements of input `place`; `what` names it in the error."""
        array = self.constant(place)
        if array is None:
            raise UnsupportedOperator(f"{self.node.op_type} needs a constant {what}")
        return array

    def ints(self, place: int, what: str) -> list[int]:
        """Return the elements of the constant integer input `place`."""
        return [int(item) for item in self.require_constant(place, what).reshape(-1)]

    def dims(self, place: int) -> list[Dim] | None:
        """Return the elements of an integer input as dimensions, None if known only at run time."""
        if not self.has(place):
            return None
        dims = self.value(place).dims()
        return None if dims is None else list(dims.reshape(-1))

    # Attributes -------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as int, float, str, list, array or GraphProto."""
        attribute = self._attributes.get(name)
        if attribute is None:
            return default
        found = onnx.helper.get_attribute_value(attribute)
        if isinstance(found, bytes):
            return found.decode()
        if isinstance(found, onnx.TensorProto):
            return numpy_helper.to_array(found)
        if isinstance(found, onnx.SparseTensorProto):
            return dense_array(found)
        if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            return list(found)
        if attribute.type == onnx.AttributeProto.STRINGS:
            return [item.decode() for item in found]
        return found

    def required(self, name: str) -> Any:
        """Return an attribute that has no default: no schema of this domain may have asked for it.

        Raises:
            InvalidModel: If the node lacks it.
        """
        if not self.has_attr(name):
            raise InvalidModel(f"attribute {name} is missing")
        return self.attr(name)

    def count(self, name: str, default: int = 0) -> int:
        """Return an integer attribute that must be positive: a number of groups, a block's size."""
        number = int(self.attr(name, default))
        if number < 1:
            raise InvalidModel(f"attribute {name} is {number}, not a positive number")
        return number

    def has_attr(self, name: str) -> bool:
        """Tell whether the attribute is written in the node."""
        return name in self._attributes

    def axis(self, default: int, rank: int | None = None) -> int:
        """Return attribute `axis` counted from the front."""
        axis = int(self.attr("axis", default))
        return normalize_axis(axis, self.ndim(0) if rank is None else rank)

    def axes(self, place: int | None) -> list[int] | None:
        """Return the reduction or squeeze axes: attribute `axes`, or constant input `place`."""
        if place is not None and self.has(place):
            axes = self.ints(place, "axes")
        else:
            axes = self.attr("axes")
        return None if axes is None else [normalize_axis(axis, self.ndim(0)) for axis in axes]

    # Emission ---------------------------------------------------------------------------------

    def emit(self, expr: relax.Expr, hint: str = "") -> relax.Var:
        """Bind an intermediate result; its shape is fully known afterwards."""
        return self.builder.emit(expr, hint or f"{self.title}_{self.node.op_type}")

    def aligned(self, places: Sequence[int]) -> list[relax.Expr]:
        """Return inputs that broadcast with each other, of sizes that agree.

        `emit` does so for the operands of each Relax operator that broadcasts. This is for inputs
        with several readers, and for kernels.
        """
        return self.builder.sizes.aligned([self.x(place) for place in places], self.title)

    def fitted(self, x: relax.Expr, dims: Sequence[Dim]) -> relax.Expr:
        """Return a bound tensor so that it broadcasts one way to `dims`, and not `dims` to it."""
        return self.builder.sizes.fitted(x, dims, self.title)

    def as_shape(self, x: relax.Expr, dims: Sequence[Dim]) -> relax.Expr:
        """State the shape of a bound tensor where its symbolic sizes differ from `dims`."""
        have = dims_of(x)
        fits = len(have) == len(dims) and not any(
            is_static(a) and is_static(b) and a != b for a, b in zip(have, dims, strict=True)
        )
        if not fits:
            raise InvalidModel(f"a tensor of shape {have} where {list(dims)} is needed")
        return self.builder.sizes.stated(x, dims, self.title)

    def state(self, place: int, dims: Sequence[Dim]) -> None:
        """State the shape that input `place` must have, for a kernel that reads all of it.

        A kernel reads what the shape of another input promises, beyond the end of one that is
        shorter.

        Raises:
            InvalidModel: If a size that is known now differs; others are checked at run time.
        """
        value, have = self.value(place), self.shape(place)
        if len(have) != len(dims):
            raise InvalidModel(f"input {place} has shape {list(have)} where {list(dims)} is needed")
        if not all(self.arithmetic.equal(a, b) for a, b in zip(have, dims, strict=True)):
            stated = self.as_shape(self.x(place), dims)
            self.inputs[place] = Value(value.name, value.dtype, expr=stated)

    def require_at_most(self, size: Dim, most: Dim, name: str) -> None:
        """State that a size is at most another, checked at run time where that is not known now."""
        if self.arithmetic.is_nonnegative(self.arithmetic.simplify(most - size)):
            return
        if is_static(size) and is_static(most):
            raise InvalidModel(f"{size} must be at most {most} ({name})")
        self.require(prim(size) <= prim(most), name)

    def te(
        self,
        compute: Callable[..., Any],
        *tensors: relax.Expr,
        name: str = "",
        dims: Sequence[Dim] = (),
    ) -> relax.Var:
        """Emit a tensor expression: for operators that Relax lacks or gets wrong.

        `compute` gets a TE tensor for each of `tensors`, then the list `dims` if there is one:
        symbolic dimensions that `compute` uses must be handed over this way.
        """
        return self.builder.emit_te(compute, *tensors, name=name or self.node.op_type, dims=dims)

    def const(self, data: Any, dtype: str | None = None) -> relax.Expr:
        """Return a Relax constant; the dtype of input 0 is the default."""
        return relax_constant(np.asarray(data, dtype=numpy_dtype(dtype or self.dtype(0))))

    def stored(self, expr: relax.Expr, dtype: str) -> Value:
        """Return a container's tensor as a value of the ONNX type `dtype` that it stores."""
        return Value("", dtype, expr=expr)

    def symbol(self, hint: str = "n") -> Any:
        """Return a fresh symbolic dimension: a size known only at run time."""
        return self.builder.fresh_symbol(hint)

    def match_shape(self, expr: relax.Expr, dims: Sequence[Dim], dtype: str) -> relax.Var:
        """State the shape of `expr`, checked at run time; it defines new symbols in `dims`."""
        return self.builder.match_tensor(expr, dims, dtype, f"{self.title}_operand")

    def require(self, condition: Any, name: str) -> None:
        """State a condition on symbolic sizes, checked at run time; `name` says what for."""
        self.builder.require(condition, f"{self.title}_{name}")

    def require_equal(self, left: Dim, right: Dim, name: str) -> None:
        """State that two sizes are equal, checked at run time where that is not known now."""
        if self.arithmetic.equal(left, right):
            return
        if is_static(left) and is_static(right):
            raise InvalidModel(f"{left} and {right} must be equal ({name})")
        self.require(prim(left) == prim(right), name)

    def runtime_dims(self, place: int, count: int | None = None) -> list[Dim]:
        """Return the elements of an integer vector as dimensions, read at run time if need be.

        Args:
            place: The input.
            count: How many there must be, where that is known: the vector's own length may not be.
        """
        known = self.dims(place)
        if known is not None:
            return known
        if count is not None:
            self.state(place, [count])
        return self.builder.read_dims(self.value(place), self.title)

    def run_subgraph(self, graph: onnx.GraphProto) -> list[Value]:
        """Import a subgraph without inputs in place and return its outputs."""
        return self.builder.run_subgraph(graph)

    def expand(self, body: FunctionBody) -> list[Value]:
        """Import a function body over this node's inputs and return its outputs."""
        return self.builder.expand(body, self.inputs)

    @property
    def title(self) -> str:
        """Return the node's first output name."""
        return next((name for name in self.node.output if name), self.node.name)

    def unsupported(self, reason: str) -> UnsupportedOperator:
        """Return the error to raise for a variant of the operator that is not handled."""
        return UnsupportedOperator(f"{self.node.op_type}: {reason}")


def normalize_axis(axis: int, rank: int) -> int:
    """Return `axis` counted from the front; raise InvalidModel if it is out of range."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise InvalidModel(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def numpy_dtype(dtype: str) -> np.dtype:
    """Return the NumPy dtype of a Relax dtype name, bfloat16 and float8 included."""
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
