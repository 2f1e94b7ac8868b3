"""A graph that Dynamo captured and AOTAutograd made functional, as a Relax module.

The graph's arguments and results are more than tensors: sizes, None, tensors of any memory layout.
What has to be done around the compiled function is described by `Argument` and `Result`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax

from frontends.errors import UnsupportedOperator
from frontends.imported_model import ImportedModel, TensorSpec
from frontends.torch.graph_builder import GraphBuilder, dtype_name, inverse
from frontends.torch.graph_walk import GraphWalk, check_operators, is_size, live_nodes
from frontends.torch.main_function import build_main
from frontends.torch.operators.random_numbers import is_random
from frontends.torch.output_views import View, shared_bases
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


@dataclass(frozen=True)
class CapturedGraph:
    """A captured graph as a Relax module, and how to call it with the graph's own arguments."""

    model: ImportedModel
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]


def import_captured_graph(
    graph_module: torch.fx.GraphModule, constants: Mapping[int, torch.Tensor], source: str
) -> CapturedGraph:
    """Import a functional ATen graph.

    Args:
        graph_module: Its placeholders carry fake tensors or symbolic sizes.
        constants: Arguments, by place, whose values are fixed.
        source: What reports call the graph.

    Raises:
        UnsupportedOperator: If operators have no converter (all are listed), or an argument is
            neither a tensor nor an integer.
        InvalidModel: If an operator cannot be converted.
    """
    return _Captured(graph_module, constants).build(source)


class _Captured:
    def __init__(self, module: torch.fx.GraphModule, constants: Mapping[int, torch.Tensor]) -> None:
        self.module, self.constants = module, constants
        self.symbols = SymbolTable({})
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        (output,) = [n for n in module.graph.nodes if n.op == "output"]
        self.outputs: list[Any] = list(output.args[0])
        self.variables: list[relax.Var] = []
        self.specs: list[TensorSpec] = []
        self.arguments: list[Argument] = []

    def build(self, source: str) -> CapturedGraph:
        """Build `main` and the description of its arguments and results."""
        wanted = [o for o in self.outputs if isinstance(o, torch.fx.Node)]
        live = live_nodes(self.module.graph, wanted)
        check_operators(live)
        inputs = self._tensor_inputs(set(live))
        numbers = self._size_inputs()
        seed = None
        if any(is_random(node.target) for node in live):
            seed = self._variable("seed", [1], "int64", Argument("seed"))
        block = relax.BlockBuilder()
        builder = GraphBuilder(block, self.symbols, seed)
        values: dict[torch.fx.Node, Any] = {}
        results: list[Result] = []
        specs: list[TensorSpec] = []

        def emit() -> list[relax.Expr]:
            for node, (var, size) in numbers.items():
                builder.node = node
                builder.define_sizes(var, [size])
            for place, node in enumerate(self.placeholders):
                values[node] = self._value(builder, place, node, inputs)
            walk = GraphWalk(builder, values, self.module)
            walk.run(live)
            return self._results(builder, walk, results, specs)

        module = build_main(block, self.variables, emit)
        model = ImportedModel(module, tuple(self.specs), tuple(specs), source)
        return CapturedGraph(model, tuple(self.arguments), tuple(results))

    def _tensor_inputs(self, live: set[torch.fx.Node]) -> dict[torch.fx.Node, relax.Var]:
        inputs = {}
        for place, node in enumerate(self.placeholders):
            fake = node.meta.get("val")
            if node not in live or place in self.constants or not isinstance(fake, torch.Tensor):
                continue
            if fake.device.type != "cpu":
                raise UnsupportedOperator(
                    f"a tensor on {fake.device}, for which there is no target", tensor=node.name
                )
            order = memory_order(fake)
            shape = self.symbols.shape([fake.shape[axis] for axis in order or range(fake.ndim)])
            self.symbols.define(shape)
            argument = Argument("tensor", place, order, _is_compact(fake, order))
            inputs[node] = self._variable(node.name, shape, dtype_name(fake.dtype), argument)
        return inputs

    def _size_inputs(self) -> dict[torch.fx.Node, tuple[relax.Var, Any]]:
        """Return inputs for the sizes that no tensor's shape tells."""
        numbers = {}
        for place, node in enumerate(self.placeholders):
            value = node.meta.get("val")
            if not isinstance(value, torch.SymInt):
                continue
            size = self.symbols.size(value)
            if self.symbols.is_undefined(size):
                var = self._variable(node.name, [1], "int64", Argument("size", place))
                self.symbols.define([size])
                numbers[node] = (var, size)
        return numbers

    def _variable(self, name: str, shape: Any, dtype: str, argument: Argument) -> relax.Var:
        var = relax.Var(name, relax.TensorType(shape, dtype))
        self.variables.append(var)
        self.specs.append(TensorSpec(name, named_dims(shape), dtype))
        self.arguments.append(argument)
        return var

    def _value(
        self,
        builder: GraphBuilder,
        place: int,
        node: torch.fx.Node,
        inputs: Mapping[torch.fx.Node, relax.Var],
    ) -> Any:
        if place in self.constants:
            return self.constants[place]
        value = node.meta.get("val")
        if node in inputs:
            order = memory_order(value)
            return inputs[node] if order is None else builder.permute(inputs[node], inverse(order))
        return None if isinstance(value, torch.Tensor) else value

    def _results(
        self,
        builder: GraphBuilder,
        walk: GraphWalk,
        results: list[Result],
        specs: list[TensorSpec],
    ) -> list[relax.Expr]:
        """Return the tensors to compute; describe what they are in `results` and `specs`."""
        tensors: list[relax.Expr] = []
        places: dict[torch.fx.Node, tuple[int, tuple[int, ...] | None]] = {}
        for number, (output, views) in enumerate(shared_bases(self.outputs)):
            if not isinstance(output, torch.fx.Node):
                if output is not None:
                    raise UnsupportedOperator(f"a result of type {type(output).__name__}")
                results.append(Result("none"))
                continue
            if output.op == "placeholder":
                results.append(Result("argument", self.placeholders.index(output)))
                continue
            kind = "size" if is_size(output) else "tensor"
            if output in places:
                results.append(Result(kind, *places[output], views))
                continue
            tensor, order = walk.tensor(output), None
            if kind == "tensor":
                order = memory_order(output.meta["val"])
                tensor = tensor if order is None else builder.permute(tensor, list(order))
            places[output] = len(tensors), None if order is None else tuple(inverse(order))
            results.append(Result(kind, *places[output], views))
            dims = named_dims(builder.shape(tensor))
            specs.append(TensorSpec(f"output_{number}", dims, str(tensor.ty.dtype)))
            tensors.append(tensor)
        if not tensors:
            raise UnsupportedOperator("a graph without any result to compute")
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
