"""What a converter works with: the Relax block being built and the current ATen node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax, te

from frontends.computations.checked_indices import NAME as CHECK
from frontends.computations.checked_indices import checked_indices
from frontends.computations.checked_values import NAME as DIVISOR_CHECK
from frontends.computations.checked_values import checked_values
from frontends.computations.exact_reshape import exact_reshape
from frontends.control_flow.function_builder import FunctionBuilder
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.torch.dtypes import dtype_name, number_constant, part_dtype
from frontends.torch.requirements import Requirements
from frontends.torch.size_guards import SizeGuards
from frontends.torch.size_requirements import SizeRequirements
from frontends.torch.sizes import product, same_shape
from frontends.torch.source_line import source_line
from frontends.torch.symbolic_numbers import SymbolicNumbers
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


_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: multiples are far apart


class GraphBuilder:
    """Emits Relax operators for one ATen node after the other.

    Attributes:
        node: The node being converted.
        seed: The input that keys random operators, int64 (1,); None fixes their keys.
        symbols: Translates torch's sizes.
        numbers: Translates torch's other symbolic numbers, those read from tensors.
        functions: Builds functions that this one calls.
        requirements: What must hold when the function that is being built runs.
        guards: What is known of the conditions on sizes in the graph; None where they hold.
        sizes: States conditions on sizes.
        loop_indices: The number of the step in each loop around, outermost first.
        holds_functions: Whether the graph has others within, which may use its sizes.
        run_subgraph: Converts a graph that an operator holds where it is called: the graph and its
            arguments in, its results out. A `GraphWalk` sets it.
        value_of: What a node that was converted has become. A `GraphWalk` sets it.
    """

    def __init__(
        self,
        block: relax.BlockBuilder,
        symbols: SymbolTable,
        seed: relax.Expr | None = None,
        guards: SizeGuards | None = None,
    ) -> None:
        """Build into `block`, whose function and dataflow scopes the importer opens."""
        self.seed, self._draws = seed, 0
        self.guards = guards
        self.sizes = SizeRequirements(block, symbols.arithmetic)
        self.functions = FunctionBuilder(block, symbols.arithmetic, symbols.known, symbols.fresh)
        self.requirements = Requirements(self.te, self.emit)
        self.loop_indices: list[Size] = []
        self.holds_functions = False
        self.run_subgraph: Callable[[torch.fx.GraphModule, Sequence[Value]], list[Value]]
        self.value_of: Callable[[torch.fx.Node], Value]
        self._block = block
        self.symbols = symbols
        self.numbers = SymbolicNumbers(
            self.emit, lambda expr: self.size_tensor(symbols.of_expression(expr)), self.divisor
        )
        self._constants: dict[int, tuple[torch.Tensor, relax.Expr]] = {}
        self.node: torch.fx.Node

    # -- the result the node must have, as torch inferred it

    @property
    def dtype(self) -> str:
        """The dtype of the node's (first) result, after torch's type promotion.

        Of complex numbers it is that of their parts.
        """
        return part_dtype(self._fake.dtype)

    @property
    def is_complex_result(self) -> bool:
        """Whether the node's (first) result is complex."""
        return self._fake.is_complex()

    @property
    def result_shape(self) -> list[Size]:
        """The shape of the node's (first) result."""
        return self.symbols.shape(self._fake.shape)

    @property
    def scalar_result(self) -> Size | None:
        """The node's result as a size, where it is an integer; None otherwise."""
        value = self.node.meta["val"]
        return self.symbols.size(value) if isinstance(value, int | torch.SymInt) else None

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
                return number_constant(value.item(), dtype)
            expr = self._constant(value)
        elif isinstance(value, bool | int | float):
            return number_constant(value, dtype or self.dtype)
        elif isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            expr = self._number(value)
        else:
            expr = value
        return expr if dtype is None or expr.ty.dtype == dtype else self.cast(expr, dtype)

    def operands(self, *values: Value) -> tuple[relax.Expr, ...]:
        """Return each value as a tensor of the result's dtype: how arithmetic promotes."""
        return tuple(self.tensor(value, self.dtype) for value in values)

    def _constant(self, value: torch.Tensor) -> relax.Expr:
        if value.is_meta:
            raise InvalidModel(
                "a constant or a parameter is on the meta device: it has no elements"
            )
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

    def te(
        self,
        compute: Callable[..., Any],
        *tensors: relax.Expr,
        name: str = "",
        dims: Sequence[Size] | None = None,
    ) -> relax.Var:
        """Emit the kernel that a tensor expression describes: for operators that Relax lacks.

        `compute` gets a TE tensor for each of `tensors` and then, if `dims` is given, their list:
        a kernel has symbols of its own, so `compute` must not use the graph's.
        """
        hint = name or str(self.node.target).split(".")[1]
        extra = [] if dims is None else [list(dims)]
        return self._block.emit_te(
            compute, *tensors, *extra, primfunc_name_hint=hint, name_hint=hint
        )

    def parts(self, together: relax.Expr, count: int) -> list[relax.Expr]:
        """Return the first `count` tensors of a kernel with several results."""
        return [self.emit(relax.TupleGetItem(together, place)) for place in range(count)]

    def define_sizes(self, numbers: relax.Expr, sizes: Sequence[Size]) -> None:
        """Read sizes that only the data decides: the symbols in `sizes` take their values here.

        Args:
            numbers: An int64 vector; a run fails where it differs from `sizes`.
            sizes: As many sizes; symbols not seen before are defined.
        """
        read = relax.op.call_pure_packed(
            "vm.builtin.tensor_to_shape", numbers, ty_args=relax.ShapeType(ndim=len(sizes))
        )
        name = f"{self.node.name}_sizes"
        self.symbols.define(sizes)
        self._block.match_cast(self.emit(read), relax.ShapeType(list(sizes)), name)

    def number_read(self, number: relax.Expr) -> None:
        """Note that the node's result, a symbol of torch, is the number in a tensor of rank 0.

        An integer is read into a size only where it is used as one: others may be negative.
        """
        node, value = self.node, self.node.meta["val"]
        symbol = value.node.expr
        if isinstance(value, torch.SymBool):  # torch has it for Eq(u, 1)
            (symbol,), number = symbol.free_symbols, self.cast(number, "int64")
        if not symbol.is_Symbol:
            return
        if self.functions.frame is None:
            self.numbers.tensors[str(symbol)] = number
        if not isinstance(value, torch.SymInt):
            return

        def define(size: Size) -> None:
            user, self.node = self.node, node
            self.define_sizes(self.reshape(number, [1]), [size])
            self.node = user

        if self.functions.frame is None and not self.holds_functions:
            self.symbols.postpone(str(symbol), define)
        elif self.is_undefined(size := self.symbols.size(value)):
            define(size)

    def is_undefined(self, size: Size) -> bool:
        """Tell whether a size is a symbol that neither an input nor a run's data has given yet."""
        return self.symbols.is_undefined(size)

    def fix_size(self, size: Size, value: int) -> None:
        """Note that a size which torch took for unknown is a number."""
        self.symbols.fix(size, value)

    def checked(self, indices: Value, size: Size) -> relax.Expr:
        """Return integer indices so that each is in range or the run fails.

        Args:
            indices: Integers; i fits an axis of n elements if -n <= i < n.
            size: The length of the axis that they index.

        Raises:
            InvalidModel: If a constant index is out of range.
        """
        static = isinstance(size, int)
        if isinstance(indices, torch.Tensor) and static:
            self.check_constant([indices], [size])
            return self.tensor(indices)
        x = self.tensor(indices)
        if x.ty.dtype not in ("int32", "int64"):
            x = self.cast(x, "int64")
        message = f"{self.node.target}: an index is out of range for axes of size {size}"

        def compute(places: te.Tensor, dims: Sequence[Size] = (size,)) -> te.Tensor:
            return checked_indices(places, list(dims), message + source_line(self.node))

        shape = self.shape(x)
        flat = x if shape else self.reshape(x, [1])
        found = self.te(compute, flat, name=CHECK, dims=None if static else [size])
        return self.reshape(found, shape)

    def check_constant(self, indices: Sequence[torch.Tensor], sizes: Sequence[Size]) -> None:
        """Refuse constant indices that are out of range.

        Raises:
            InvalidModel: Naming the index.
        """
        for places, size in zip(indices, sizes, strict=True):
            if places.numel() and isinstance(size, int):
                low, high = int(places.min()), int(places.max())
                if low < -size or high >= size:
                    wrong = low if low < -size else high
                    raise InvalidModel(
                        f"index {wrong} is out of range for {size} elements"
                        f"{source_line(self.node)}",
                        node=self.node.name,
                    )

    def random_key(self) -> relax.Expr:
        """Return the key of the node's draw, int64 (1,): no two nodes have the same one."""
        self._draws += 1
        step = (self._draws * _GOLDEN + (1 << 63)) % (1 << 64) - (1 << 63)
        own = relax.const(np.asarray([step]), "int64")
        keys = [own]
        if self.seed is not None:
            keys.append(self.functions.here(self.seed, None))
        for depth, index in enumerate(self.loop_indices, 1):  # no two steps have the same one
            step = self.reshape(self.size_tensor(index), [1])
            odd = relax.const(np.asarray([2 * depth * _GOLDEN % (1 << 63) + 1]), "int64")
            keys.append(self.emit(relax.op.multiply(step, odd)))
        return functools.reduce(lambda a, b: self.emit(relax.op.bitwise_xor(a, b)), keys)

    def operand(self, place: int) -> torch.Tensor:
        """Return what torch knows of an operand: shape, strides and dtype, no elements."""
        argument = self.node.args[place]
        assert isinstance(argument, torch.fx.Node)
        return argument.meta["val"]

    def size_tensor(self, size: Size) -> relax.Expr:
        """Return a size as a rank-0 int64 tensor."""
        if isinstance(size, int):
            return relax.const(size, "int64")
        # The tensor form of a shape is the only operator that makes a number of a symbolic size.
        return self.reshape(self.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))), [])

    def divisor(self, x: relax.Expr) -> relax.Expr:
        """Return integers to divide by: a zero among them ends the run, as it does eager's."""
        message = f"{self.node.target}: an integer is divided by zero" + source_line(self.node)
        shape = self.shape(x)
        rows = x if shape else self.reshape(x, [1])
        checked = self.te(lambda t: checked_values(t, 0, message), rows, name=DIVISOR_CHECK)
        return self.reshape(checked, shape)

    def _number(self, value: torch.SymInt | torch.SymFloat | torch.SymBool) -> relax.Expr:
        """Return a symbolic number as a tensor of rank 0."""
        if isinstance(value, torch.SymFloat) or self.numbers.holds(value.node.expr):
            return self.numbers.tensor(value.node.expr)
        if isinstance(value, torch.SymInt):
            return self.size_tensor(self.symbols.size(value))
        return self._condition_tensor(self.symbols.condition(value))

    def _condition_tensor(self, condition: Any) -> relax.Expr:
        """Return a condition on sizes as a rank-0 tensor of bool."""
        if isinstance(condition, bool):
            return relax.const(condition, "bool")
        one = tvm.tirx.IntImm("int64", 1)
        zero = tvm.tirx.IntImm("int64", 0)
        return self.cast(self.size_tensor(tvm.tirx.Select(condition, one, zero)), "bool")

    def state(self, value: Value) -> relax.Expr:
        """Return what a branch or a step returns, or is given, as a tensor; an integer as int64."""
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return relax.const(value, "int64") if is_number else self.tensor(value)

    def captured(self, value: Value) -> Value:
        """Return a value of the function around as the one that is being built reads it."""
        if isinstance(value, relax.Var) and self.functions.frame is not None:
            return self.functions.frame.capture(value)
        return value

    def given(self, argument: Value, fake: Any) -> Value:
        """Return an argument of a graph within a graph as its placeholder, whose symbols are bound.

        Args:
            argument: A tensor, a size of the function being built, or another scalar.
            fake: What torch knows of the placeholder.
        """
        if isinstance(fake, torch.SymInt):
            if isinstance(getattr(argument, "ty", None), relax.TensorType):
                number = self.reshape(argument, [1])
                argument = self.functions.fresh_symbol("carried")
                self.define_sizes(number, [argument])
            self.symbols.bind(fake, argument)
            return fake
        if isinstance(argument, torch.Tensor) or not isinstance(fake, torch.Tensor):
            return argument
        for size, dim in zip(self.shape(argument), fake.shape, strict=True):
            if isinstance(dim, torch.SymInt) and self.is_undefined(self.symbols.size(dim)):
                self.symbols.bind(dim, size)
        return self.matched(argument, fake)

    def matched(self, tensor: relax.Expr, fake: torch.Tensor) -> relax.Expr:
        """Return a tensor with the sizes that torch says it has; the run checks them."""
        wanted = self.symbols.shape(fake.shape)
        if same_shape(self.shape(tensor), wanted):
            return tensor
        self.symbols.define(wanted)
        return self.functions.match_tensor(tensor, wanted, str(tensor.ty.dtype))

    def cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        """Cast `x`; float to bool compares with zero, as torch does."""
        if dtype == "bool":
            return self.emit(relax.op.not_equal(x, relax.const(0, x.ty.dtype)))
        return self.emit(relax.op.astype(x, dtype))

    def reshape(self, x: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
        """Reshape `x`, or return it as it is where the shape is the same; one size may be -1."""
        wanted = list(shape)
        if same_shape(self.shape(x), wanted):
            return x
        if any(isinstance(size, int) and size == -1 for size in wanted):
            return self.emit(relax.op.reshape(x, wanted))
        self.sizes.require_elements(self.node, self.shape(x), wanted)
        return self.emit(exact_reshape(x, relax.ShapeExpr(wanted)))

    def rows(self, x: relax.Expr, axis: int) -> relax.Expr:
        """Return `x` as (outer, length of `axis`, inner): a view."""
        shape = self.shape(x) or [1]
        return self.reshape(x, [product(shape[:axis]), shape[axis], product(shape[axis + 1 :])])

    def broadcast(self, x: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
        """Broadcast `x` to `shape`, or return it as it is where it has that shape."""
        if same_shape(self.shape(x), list(shape)):
            return x
        return self.emit(relax.op.broadcast_to(x, list(shape)))

    def permute(self, x: relax.Expr, axes: list[int]) -> relax.Expr:
        """Permute the axes of `x`; an identity costs nothing."""
        if axes == list(range(len(axes))):
            return x
        return self.emit(relax.op.permute_dims(x, axes))

    def slice_axis(
        self, x: relax.Expr, axis: int, begin: Size, end: Size, step: int = 1
    ) -> relax.Expr:
        """Take `begin:end:step` of one axis; the bounds must lie within it, which a run checks."""
        self.sizes.require_within(self.node, begin, end, self.shape(x)[axis])
        return self.emit(
            relax.op.strided_slice(x, [axis], [begin], [end], [step], assume_inbound=True)
        )

    def is_read(self, place: int) -> bool:
        """Tell whether anything reads one of the node's several results."""
        return any(user.args[1] == place for user in self.node.users)

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
        return self.symbols.size(value)

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
