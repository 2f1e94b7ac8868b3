"""An exported program as a Relax module: inputs, weights, state, and named outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.utils import _pytree as pytree
from tvm import relax

from frontends.fixed_inputs import mark_fixed
from frontends.imported_model import ImportedModel, TensorSpec
from frontends.size_bounds import promise, split_bound
from frontends.size_statements import with_reasons
from frontends.torch.complex_numbers import from_pairs
from frontends.torch.derived_sizes import bind_derived
from frontends.torch.dtypes import part_dtype
from frontends.torch.export_program import export_core_aten
from frontends.torch.graph_builder import GraphBuilder
from frontends.torch.graph_walk import (
    GraphWalk,
    check_layout,
    check_operators,
    live_nodes,
    sizes_first,
)
from frontends.torch.main_function import build_main
from frontends.torch.size_guards import SizeGuards
from frontends.torch.symbolic_shapes import Size, SymbolTable, named_dims

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)


def import_exported_program(
    source: Any,
    example_inputs: Any,
    dynamic_shapes: Any,
    keep_params: bool = False,
) -> ImportedModel:
    """Import a module or an exported program; see `frontends.torch.import_torch`."""
    program = export_core_aten(source, example_inputs, dynamic_shapes)
    built = _Program(program, dynamic_shapes, keep_params)
    return built.build(type(source).__name__)


class _Program:
    """One pass over a program's graph."""

    def __init__(self, program: ExportedProgram, dynamic_shapes: Any, keep_params: bool) -> None:
        self.program, self.keep_params = program, keep_params
        self.symbols = SymbolTable(_symbol_names(program, dynamic_shapes))
        self.least = _declared_least(dynamic_shapes)
        self.nodes = {node.name: node for node in program.graph.nodes}
        self.inputs: list[tuple[relax.Var, TensorSpec]] = []
        self.kept: list[tuple[relax.Var, TensorSpec]] = []
        self.scalars: list[tuple[torch.fx.Node, relax.Var, Any]] = []
        self.pairs: list[torch.fx.Node] = []  # complex inputs

    def build(self, source: str) -> ImportedModel:
        """Build the module `main` computes, with its inputs' and outputs' specs."""
        graph, signature = self.program.graph, self.program.graph_signature
        results = self._results()
        live = live_nodes(graph, [node for _, node in results])
        values: dict[torch.fx.Node, Any] = {}
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        derived = bind_derived(self.symbols, placeholders)
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            values[node] = self._input(node, spec)
        check_operators(live, self.program.graph_module)
        block = relax.BlockBuilder()
        builder = GraphBuilder(block, self.symbols, guards=SizeGuards(self.program))
        walk = GraphWalk(builder, values, self.program.graph_module)
        everything = [*self.inputs, *self.kept]

        def emit() -> list[relax.Expr]:
            for one in derived:
                builder.sizes.require(one.node, one.condition, one.reason, "size")
            for node, var, size in self.scalars:
                builder.node = node
                builder.define_sizes(builder.reshape(var, [1]), [size])
            for node in self.pairs:
                builder.node = node
                values[node] = from_pairs(builder, values[node])
            walk.run(sizes_first(live))
            return walk.held([walk.tensor(node) for _, node in results])

        module = build_main(block, [var for var, _ in everything], emit)
        ranges, symbols = self.program.range_constraints, self.symbols
        known = {str(variable.name) for variable in symbols.known()}
        declared = {name: least for name, least in self.least.items() if name in known}
        least = {**symbols.lower_bounds(ranges), **declared}
        module = promise(module, symbols.upper_bounds(ranges), least)
        module = with_reasons(module, builder.sizes.reasons)
        outputs = tuple(self._spec(name, node.meta["val"]) for name, node in results)
        specs = tuple(spec for _, spec in everything)
        fixed = [number for number, spec in enumerate(specs) if spec.is_parameter]
        return ImportedModel(mark_fixed(module, fixed), specs, outputs, source)

    def _input(self, node: torch.fx.Node, spec: InputSpec) -> Any:
        fake = node.meta["val"]
        if spec.kind in _WEIGHTS:
            written = spec.target in self.program.graph_signature.buffers_to_mutate.values()
            # torch reads a parameter that has two names by one of them alone.
            kept = self.keep_params and node.users and spec.kind != InputKind.CONSTANT_TENSOR
            if written or kept:
                return self._parameter(self.kept, str(spec.target), fake, not written)
            weight = self._weight(spec)
            check_layout(weight, str(spec.target))
            return weight
        if isinstance(fake, torch.SymInt):
            var = self._parameter(self.inputs, node.name, torch.empty((), dtype=torch.int64))
            self.scalars.append((node, var, self.symbols.size(fake)))
            return fake
        if not isinstance(spec.arg, TensorArgument):
            return getattr(spec.arg, "value", None)  # a Python scalar or None, fixed at export
        if fake.is_complex():
            self.pairs.append(node)
        return self._parameter(self.inputs, node.name, fake)

    def _parameter(
        self,
        group: list[tuple[relax.Var, TensorSpec]],
        name: str,
        fake: torch.Tensor,
        is_parameter: bool = False,
    ) -> relax.Var:
        check_layout(fake, name)
        shape = self._real_shape(fake)
        self.symbols.define(shape)
        var = relax.Var(_identifier(name), relax.TensorType(shape, part_dtype(fake.dtype)))
        group.append((var, replace(self._spec(name, fake), is_parameter=is_parameter)))
        return var

    def _weight(self, spec: InputSpec) -> torch.Tensor:
        if spec.target in self.program.state_dict:
            return self.program.state_dict[spec.target]
        return self.program.constants[spec.target]

    def _results(self) -> list[tuple[str, torch.fx.Node]]:
        """Return names and nodes of the user's outputs, then those of state after the call."""
        users, state = [], []
        for spec in self.program.graph_signature.output_specs:
            node = self.nodes.get(getattr(spec.arg, "name", ""))
            if spec.kind in _STATE:
                assert node is not None
                state.append((f"new_{spec.target}", node))
            elif spec.kind == OutputKind.USER_OUTPUT and node is not None:
                users.append(node)
        return [*zip(self._output_names(len(users)), users, strict=True), *state]

    def _output_names(self, count: int) -> list[str]:
        """Name outputs after their keys in the module's result, or output_0, output_1, …."""
        if count == 1:
            return ["output"]
        spec = self.program.call_spec.out_spec
        tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
        keys = [
            re.sub(r"\W+", "_", pytree.keystr(path)).strip("_")
            for path, _ in pytree.tree_flatten_with_path(tree)[0]
        ]
        kept = [
            k
            for k, name in zip(keys, self.program.graph_signature.user_outputs, strict=True)
            if isinstance(name, str)
        ]
        return [f"output_{key}" if key[:1].isdigit() else key for key in kept]

    def _spec(self, name: str, fake: Any) -> TensorSpec:
        if not isinstance(fake, torch.Tensor):
            return TensorSpec(name, (), scalar_dtype(fake))
        return TensorSpec(name, named_dims(self._real_shape(fake)), part_dtype(fake.dtype))

    def _real_shape(self, fake: torch.Tensor) -> list[Size]:
        """Return a tensor's shape; complex numbers are pairs in a last axis."""
        return self.symbols.shape(fake.shape) + [2] * fake.is_complex()


def scalar_dtype(value: Any) -> str:
    """Return the dtype of the tensor that holds a Python or symbolic number."""
    if isinstance(value, bool | torch.SymBool):
        return "bool"
    return "int64" if isinstance(value, int | torch.SymInt) else "float64"


def _identifier(name: str) -> str:
    return re.sub(r"^(?=\d)|\W", "_", name)


def _symbol_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """Match torch's size symbols with the names in `dynamic_shapes`, dimension by dimension."""
    if not dynamic_shapes:
        return {}
    kinds = program.graph_signature.input_specs
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    inputs = [n for n, s in zip(placeholders, kinds, strict=True) if s.kind == InputKind.USER_INPUT]
    names: dict[str, str] = {}
    for node, dims in zip(inputs, _per_tensor(dynamic_shapes), strict=False):
        for axis, dim in _by_axis(dims):
            dim = getattr(dim, "root", dim)  # of 2 * n it is n
            name = split_bound(dim)[0] if isinstance(dim, str) else getattr(dim, "__name__", None)
            size = node.meta["val"].shape[axis]
            if name and isinstance(size, torch.SymInt) and len(size.node.expr.free_symbols) == 1:
                names[str(*size.node.expr.free_symbols)] = name
    return names


def _declared_least(dynamic_shapes: Any) -> dict[str, int]:
    """Return the least size that a user gives a dimension, by its name: `Dim("n", min=2)`."""
    dims = (dim for dims in _per_tensor(dynamic_shapes) for _, dim in _by_axis(dims))
    named = (dim for dim in dims if hasattr(dim, "__name__"))
    return {dim.__name__: least for dim in named if (least := getattr(dim, "min", 0))}


def _by_axis(dims: Any) -> Iterable[tuple[int, Any]]:
    return dims.items() if isinstance(dims, dict) else enumerate(dims or ())


def _per_tensor(spec: Any) -> list[Any]:
    """Flatten `dynamic_shapes` to one entry a tensor: a dict or sequence by axis, or None."""
    if isinstance(spec, dict) and not all(isinstance(key, int) for key in spec):
        return [entry for value in spec.values() for entry in _per_tensor(value)]
    if isinstance(spec, list | tuple) and any(isinstance(s, dict | list | tuple) for s in spec):
        return [entry for value in spec for entry in _per_tensor(value)]
    return [spec]
