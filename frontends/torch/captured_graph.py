"""A graph that Dynamo captured and AOTAutograd made functional, as a Relax module.

The graph's arguments and results are more than tensors: sizes, None, tensors of any memory layout.
What has to be done around the compiled function is described by `Argument` and `Result`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax

from frontends.errors import UnsupportedOperator
from frontends.fixed_inputs import mark_fixed
from frontends.imported_model import ImportedModel, TensorSpec
from frontends.size_statements import with_reasons
from frontends.torch.dtypes import dtype_name
from frontends.torch.graph_builder import GraphBuilder
from frontends.torch.graph_walk import (
    GraphWalk,
    check_layout,
    check_operators,
    is_size,
    live_nodes,
    with_subgraphs,
)
from frontends.torch.main_function import build_main
from frontends.torch.operators.random_numbers import is_random
from frontends.torch.output_views import View, shared_bases, symbol_places
from frontends.torch.sizes import inverse
from frontends.torch.symbolic_shapes import SymbolTable, named_dims


@dataclass(frozen=True)
class Argument:
    """What one parameter of the compiled function is made of.

    Attributes:
        kind: "tensor"; "size", an integer as int64 (1,); or "seed", a random int64 (1,).
        place: Which of the graph's arguments; unused for a seed.
        order: The axes in the order of memory, where the tensor is not contiguous; such a tensor is
            passed permuted, without a copy.
        compact: Whether its strides are then those that its shape implies: torch calls a tensor
            contiguous whatever the stride of an axis of one element.
    """

    kind: str
    place: int = 0
    order: tuple[int, ...] | None = None
    compact: bool = True


@dataclass(frozen=True)
class Result:
    """What one of the graph's results is made of.

    Attributes:
        kind: "tensor"; "size", an integer held by a tensor; "argument", handed through; "none".
        place: Which result of the compiled function, or which argument of the graph.
        order: The axes that bring a tensor from the order of memory back to its own.
        views: What is then taken of it: the result shares its memory with another one.
    """

    kind: str
    place: int = 0
    order: tuple[int, ...] | None = None
    views: tuple[View, ...] = ()


class CapturedGraph:
    """A functional ATen graph: how it is called, and its import.

    Attributes:
        arguments: What the inputs of the compiled function are made of.
        results: What the graph's results are made of.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        constants: Mapping[int, torch.Tensor],
        fixed: Collection[int] = (),
    ) -> None:
        """Find out how the graph is called; nothing is imported yet.

        Args:
            module: Its placeholders carry fake tensors or symbolic sizes.
            constants: Arguments, by place, whose values are fixed.
            fixed: Places of arguments that are the same in most calls, such as parameters.

        Raises:
            UnsupportedOperator: If an argument is on a device for which there is no target, or a
                result is neither a tensor nor an integer.
        """
        self._module, self._constants, self._fixed = module, constants, fixed
        self._symbols = SymbolTable({})
        self._placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        (output,) = [n for n in module.graph.nodes if n.op == "output"]
        outputs: list[Any] = list(output.args[0])
        # Views that torch takes of results are not computed.
        found = shared_bases(outputs, symbol_places(self._placeholders))
        wanted = [base for base, _ in found if isinstance(base, torch.fx.Node)]
        self._live = live_nodes(module.graph, wanted)
        self._variables: list[relax.Var] = []
        self._specs: list[TensorSpec] = []
        self._arguments: list[Argument] = []
        self._inputs = self._tensor_inputs(set(self._live))
        self._numbers = self._size_inputs()
        self._seed: relax.Var | None = None
        if any(is_random(node.target) for node in with_subgraphs(self._live, module)):
            self._seed = self._variable("seed", [1], "int64", Argument("seed"))
        self.arguments = tuple(self._arguments)
        # The tensors to compute, by node: which result, and its order of memory.
        self._computed: dict[torch.fx.Node, tuple[int, tuple[int, ...] | None]] = {}
        self.results = tuple(self._result(base, views) for base, views in found)
        if not self._computed:
            raise UnsupportedOperator("a graph without any result to compute")

    def import_model(self, source: str) -> ImportedModel:
        """Import the graph as a Relax module.

        Args:
            source: What reports call the graph.

        Raises:
            UnsupportedOperator: If operators have no converter; all of them are listed.
            InvalidModel: If an operator cannot be converted.
        """
        check_operators(self._live, self._module)
        block = relax.BlockBuilder()
        builder = GraphBuilder(block, self._symbols, self._seed)
        values: dict[torch.fx.Node, Any] = {}
        specs: list[TensorSpec] = []

        def emit() -> list[relax.Expr]:
            for node, (var, size) in self._numbers.items():
                builder.node = node
                builder.define_sizes(var, [size])
            for place, node in enumerate(self._placeholders):
                values[node] = self._value(builder, place, node)
            walk = GraphWalk(builder, values, self._module)
            walk.run(self._live)
            return self._tensors(builder, walk, specs)

        module = build_main(block, self._variables, emit)
        tensors = enumerate(self._arguments)
        fixed = [n for n, a in tensors if a.kind == "tensor" and a.place in self._fixed]
        module = with_reasons(module, builder.sizes.reasons)
        return ImportedModel(mark_fixed(module, fixed), tuple(self._specs), tuple(specs), source)

    def _tensor_inputs(self, live: set[torch.fx.Node]) -> dict[torch.fx.Node, relax.Var]:
        inputs = {}
        for place, node in enumerate(self._placeholders):
            fake = node.meta.get("val")
            if node not in live or place in self._constants or not isinstance(fake, torch.Tensor):
                continue
            if fake.device.type != "cpu":
                raise UnsupportedOperator(
                    f"a tensor on {fake.device}, for which there is no target", tensor=node.name
                )
            if fake.is_complex():
                raise UnsupportedOperator("complex numbers as an argument", tensor=node.name)
            check_layout(fake, node.name)
            order = memory_order(fake)
            shape = self._symbols.shape([fake.shape[axis] for axis in order or range(fake.ndim)])
            self._symbols.define(shape)
            argument = Argument("tensor", place, order, _is_compact(fake, order))
            inputs[node] = self._variable(node.name, shape, dtype_name(fake.dtype), argument)
        return inputs

    def _size_inputs(self) -> dict[torch.fx.Node, tuple[relax.Var, Any]]:
        """Return inputs for the sizes that no tensor's shape tells."""
        numbers = {}
        for place, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            if not isinstance(value, torch.SymInt):
                continue
            size = self._symbols.size(value)
            if self._symbols.is_undefined(size):
                var = self._variable(node.name, [1], "int64", Argument("size", place))
                self._symbols.define([size])
                numbers[node] = (var, size)
        return numbers

    def _variable(self, name: str, shape: Any, dtype: str, argument: Argument) -> relax.Var:
        var = relax.Var(name, relax.TensorType(shape, dtype))
        self._variables.append(var)
        self._specs.append(TensorSpec(name, named_dims(shape), dtype))
        self._arguments.append(argument)
        return var

    def _value(self, builder: GraphBuilder, place: int, node: torch.fx.Node) -> Any:
        if place in self._constants:
            return self._constants[place]
        value = node.meta.get("val")
        if node in self._inputs:
            order = memory_order(value)
            var = self._inputs[node]
            return var if order is None else builder.permute(var, inverse(order))
        return None if isinstance(value, torch.Tensor) else value

    def _result(self, output: Any, views: tuple[View, ...]) -> Result:
        """Describe a result; note what has to be computed for it."""
        if not isinstance(output, torch.fx.Node):
            if output is not None:
                raise UnsupportedOperator(f"a result of type {type(output).__name__}")
            return Result("none")
        if output.op == "placeholder":
            return Result("argument", self._placeholders.index(output), None, views)
        if not is_size(output) and output.meta["val"].is_complex():
            raise UnsupportedOperator("complex numbers as a result", tensor=output.name)
        if output not in self._computed:
            order = None if is_size(output) else memory_order(output.meta["val"])
            self._computed[output] = len(self._computed), order
        place, order = self._computed[output]
        back = None if order is None else tuple(inverse(order))
        return Result("size" if is_size(output) else "tensor", place, back, views)

    def _tensors(
        self, builder: GraphBuilder, walk: GraphWalk, specs: list[TensorSpec]
    ) -> list[relax.Expr]:
        """Return the tensors to compute, in the order of memory; say in `specs` what they are."""
        tensors: list[relax.Expr] = []
        computed = walk.held([walk.tensor(node) for node in self._computed])
        for tensor, (place, order) in zip(computed, self._computed.values(), strict=True):
            if order is not None:
                tensor = builder.permute(tensor, list(order))
            dims = named_dims(builder.shape(tensor))
            specs.append(TensorSpec(f"output_{place}", dims, str(tensor.ty.dtype)))
            tensors.append(tensor)
        return tensors


def memory_order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axes in the order of memory, None where that is their own order.

    A tensor whose memory has gaps, or is shared by elements, is taken as contiguous: it is copied.
    """
    strides = [_known(stride) for stride in fake.stride()]
    sizes = [_known(size) for size in fake.shape]
    order = sorted(range(fake.ndim), key=lambda axis: (-strides[axis], -sizes[axis]))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            return None
        expected *= sizes[axis]
    moved = [axis for axis in order if sizes[axis] != 1]
    return None if moved == sorted(moved) else tuple(order)


def _is_compact(fake: torch.Tensor, order: tuple[int, ...] | None) -> bool:
    """Tell whether the strides are for certain those that the shape implies, in memory order."""
    expected: Any = 1
    for axis in reversed(order or range(fake.ndim)):
        if str(fake.stride(axis)) != str(expected):
            return False
        expected = expected * fake.shape[axis]
    return True


def _known(size: Any) -> int:
    """Return a size as a number: the one it had while tracing, where it is symbolic."""
    return size if isinstance(size, int) else int(size.node.hint or 2)
