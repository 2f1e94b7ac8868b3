"""What a converter sees of one node: its inputs, attributes, and the ways to emit Relax code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax, tirx

from frontends.computations.broadcast import broadcast_loosely
from frontends.dims import Dim, DimArithmetic, is_static, prim, symbols_of
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.function_body import FunctionBody
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
        if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            return list(found)
        if attribute.type == onnx.AttributeProto.STRINGS:
            return [item.decode() for item in found]
        return found

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

    def aligned(self, places: Sequence[int], free: int | None = None) -> list[relax.Expr]:
        """Return inputs whose symbolic sizes agree, so that Relax deduces the result's shape.

        Sizes computed from the same symbol may be equal without a proof, such as both sides of a
        skip connection over a symbolic height; they are stated to be equal. Sizes that have nothing
        in common may also be 1, and broadcast then. Either is checked at run time.

        Args:
            places: The inputs, which broadcast with each other.
            free: For Concat, the axis on which they need not agree; nothing broadcasts then.
        """
        shapes = [self.shape(place) for place in places]
        loose: set[int] = set()
        if free is None:
            common, loose = self._broadcast_dims(shapes)
        else:
            common = [_known_one([s[axis] for s in shapes]) for axis in range(len(shapes[0]))]
        results = []
        for place, shape in zip(places, shapes, strict=True):
            start, wanted, stretches = len(common) - len(shape), list(shape), False
            for axis, dim in enumerate(shape):
                target = common[start + axis]
                known = is_static(dim) and (is_static(target) or (free is None and dim == 1))
                if axis != free and not known and not self.arithmetic.equal(dim, target):
                    wanted[axis] = target
                    stretches = stretches or start + axis in loose
            x = self.x(place)
            if stretches:
                x = self.te(broadcast_loosely, x, name=f"{self.title}_broadcast", dims=wanted)
            elif not all(self.arithmetic.equal(a, b) for a, b in zip(shape, wanted, strict=True)):
                x = self.match_shape(x, wanted, self.dtype(place))
            results.append(x)
        return results

    def _broadcast_dims(self, shapes: Sequence[Sequence[Dim]]) -> tuple[list[Dim], set[int]]:
        """Return the shape of tensors broadcast together, and the axes on which a size may be 1.

        Whether the sizes fit is checked by a run.
        """
        common: list[Dim] = [1] * max(len(shape) for shape in shapes)
        loose: set[int] = set()
        for shape in shapes:
            for axis, dim in enumerate(shape, len(common) - len(shape)):
                have = common[axis]
                if (is_static(have) and have == 1) or self.arithmetic.equal(have, dim):
                    common[axis] = dim
                elif (is_static(dim) and dim == 1) or (is_static(have) and is_static(dim)):
                    continue
                elif symbols_of(have) & symbols_of(dim):
                    continue  # stated to be equal
                elif is_static(dim) or is_static(have):
                    known, read = (dim, have) if is_static(dim) else (have, dim)
                    self.require(tirx.any(read == 1, read == known), "broadcasts")
                    common[axis] = known
                    loose.add(axis)
                else:
                    self.require(tirx.any(have == 1, dim == 1, have == dim), "broadcasts")
                    common[axis] = tirx.Select(have == 1, dim, have)
                    loose.add(axis)
        return common, loose

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

    def runtime_dims(self, place: int) -> list[Dim]:
        """Return the elements of an integer vector as dimensions, read at run time if need be."""
        known = self.dims(place)
        if known is not None:
            return known
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


def _known_one(dims: Sequence[Dim]) -> Dim:
    """Return the size that is known now, if one is, else the first."""
    return next((dim for dim in dims if is_static(dim)), dims[0])


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
