"""Walks an exported program and builds the Relax graph, one converter per ATen operator."""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils import _pytree as pytree
from tvm import relax

from frontends.errors import UnsupportedOperator
from frontends.imported_model import Dim, ImportedModel, TensorSpec
from frontends.size_bounds import promise, split_bound
from frontends.torch import operators  # noqa: F401  (registers the converters)
from frontends.torch.export_program import export_core_aten
from frontends.torch.graph_builder import GraphBuilder, dtype_name, source_line
from frontends.torch.registry import REGISTRY
from frontends.torch.symbolic_shapes import SymbolTable

# A constant result larger than its inputs stays an operator: folding it would only grow the file.
FOLD_LIMIT_BYTES = 1 << 20

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_exported_program(
    source: Any, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any
) -> ImportedModel:
    """Import a module or an exported program; see `frontends.torch.import_torch`."""
    program = export_core_aten(source, example_inputs, dynamic_shapes)
    live = _live_nodes(program)
    _check_operators(live)
    return _Walk(program, live, _symbol_names(program, dynamic_shapes)).build(type(source).__name__)


class _Walk:
    """One pass over a program's graph."""

    def __init__(
        self, program: ExportedProgram, live: set[torch.fx.Node], names: dict[str, str]
    ) -> None:
        self.program = program
        self.live = live
        self.symbols = SymbolTable(names)
        self.values: dict[torch.fx.Node, Any] = {}
        self.inputs: list[relax.Var] = []
        self.input_specs: list[TensorSpec] = []

    def build(self, source: str) -> ImportedModel:
        """Build the module `main` computes, with its inputs' and outputs' specs."""
        graph, signature = self.program.graph, self.program.graph_signature
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            self.values[node] = self._input(node, spec)
        block = relax.BlockBuilder()
        builder = GraphBuilder(block, self.symbols)
        with block.function("main", self.inputs):
            with block.dataflow():
                for node in graph.nodes:
                    if node in self.live and node.op in ("call_function", "get_attr"):
                        self.values[node] = self._node(builder, node)
                results = self._outputs(builder)
                bound = block.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
            block.emit_func_output(bound)
        names = self._output_names(len(results))
        fakes = [n.meta["val"] for n in self._output_nodes()]
        outputs = tuple(self._spec(n, f) for n, f in zip(names, fakes, strict=True))
        module = promise(block.get(), self.symbols.upper_bounds(self.program.range_constraints))
        return ImportedModel(module, tuple(self.input_specs), outputs, source)

    def _input(self, node: torch.fx.Node, spec: InputSpec) -> Any:
        if spec.kind in _WEIGHTS:
            return self._weight(spec)
        if not isinstance(spec.arg, TensorArgument):
            return getattr(spec.arg, "value", None)  # a Python scalar or None, fixed at export
        name = re.sub(r"\W", "_", node.name)
        fake = node.meta["val"]
        dtype = dtype_name(fake.dtype)
        var = relax.Var(name, relax.TensorType(self.symbols.shape(fake.shape), dtype))
        self.inputs.append(var)
        self.input_specs.append(self._spec(name, fake))
        return var

    def _weight(self, spec: InputSpec) -> torch.Tensor:
        if spec.target in self.program.state_dict:
            return self.program.state_dict[spec.target]
        return self.program.constants[spec.target]

    def _node(self, builder: GraphBuilder, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            return getattr(self.program.graph_module, str(node.target))
        if _is_size(node):
            return node.meta["val"]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        if node.target is operator.getitem:
            return args[0][args[1]]
        folded = _fold(node, args, kwargs)
        if folded is not None:
            return folded
        builder.node = node
        result = REGISTRY[str(node.target)](builder, *args, **kwargs)
        if isinstance(result, tuple):
            return tuple(None if r is None else _bound(builder, r) for r in result)
        return _bound(builder, result)

    def _output_nodes(self) -> list[torch.fx.Node]:
        signature = self.program.graph_signature
        names = {n.name: n for n in self.program.graph.nodes}
        return [names[name] for name in signature.user_outputs if isinstance(name, str)]

    def _outputs(self, builder: GraphBuilder) -> list[relax.Expr]:
        results = []
        for node in self._output_nodes():
            builder.node = node
            results.append(builder.tensor(self.values[node]))
        return results

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
        return [f"output_{key}" if key.isdigit() else key for key in kept]

    def _spec(self, name: str, fake: torch.Tensor) -> TensorSpec:
        shape: list[Dim] = [
            size if isinstance(size, int) else str(size) for size in self.symbols.shape(fake.shape)
        ]
        return TensorSpec(name, tuple(shape), dtype_name(fake.dtype))


def _bound(builder: GraphBuilder, value: Any) -> Any:
    """Bind a converter's result to a variable, unless it is one, or no expression at all."""
    if isinstance(value, relax.Var) or not isinstance(value, relax.Expr):
        return value
    return builder.emit(value)


def _is_size(node: torch.fx.Node) -> bool:
    """Return whether `node` computes a size or another Python scalar, not a tensor."""
    return isinstance(node.meta.get("val"), int | float | bool | torch.SymInt | torch.SymFloat)


def _fold(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    """Evaluate `node` with torch if all it takes is constant; None if it has to stay."""
    leaves = pytree.tree_leaves((args, kwargs))
    known = (torch.Tensor, int, float, bool, str, type(None), torch.dtype, torch.device)
    layout = (torch.layout, torch.memory_format)
    if not all(isinstance(leaf, known + layout) for leaf in leaves):
        return None
    results = pytree.tree_leaves(node.meta["val"])
    if any(isinstance(size, torch.SymInt) for r in results for size in r.shape):
        return None
    taken = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
    if sum(r.nbytes for r in results) > max(taken, FOLD_LIMIT_BYTES):
        return None
    assert callable(node.target)
    with torch.no_grad():
        return node.target(*args, **kwargs)


def _live_nodes(program: ExportedProgram) -> set[torch.fx.Node]:
    """Return the nodes that the user's outputs depend on; assertions and the like drop out."""
    wanted = set(program.graph_signature.user_outputs)
    stack = [n for n in program.graph.nodes if n.name in wanted]
    live: set[torch.fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return live


def _check_operators(live: set[torch.fx.Node]) -> None:
    """Raise one error for all operators without a converter, each with its first source line."""
    missing: dict[str, torch.fx.Node] = {}
    for node in sorted(live):
        known = str(node.target) in REGISTRY or node.target is operator.getitem
        if node.op == "call_function" and not known and not _is_size(node):
            missing.setdefault(str(node.target), node)
    if missing:
        listed = "; ".join(f"{name}{source_line(node)}" for name, node in missing.items())
        raise UnsupportedOperator(
            f"{len(missing)} ATen operator(s) have no converter: {listed}",
            node=next(iter(missing.values())).name,
        )


def _symbol_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """Match torch's size symbols with the names in `dynamic_shapes`, dimension by dimension."""
    if not dynamic_shapes:
        return {}
    kinds = program.graph_signature.input_specs
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    inputs = [n for n, s in zip(placeholders, kinds, strict=True) if s.kind == InputKind.USER_INPUT]
    names: dict[str, str] = {}
    for node, dims in zip(inputs, _per_tensor(dynamic_shapes), strict=False):
        pairs = dims.items() if isinstance(dims, dict) else enumerate(dims or ())
        for axis, dim in pairs:
            name = split_bound(dim)[0] if isinstance(dim, str) else getattr(dim, "__name__", None)
            size = node.meta["val"].shape[axis]
            if name and isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                names[str(size.node.expr)] = name
    return names


def _per_tensor(spec: Any) -> list[Any]:
    """Flatten `dynamic_shapes` to one entry a tensor: a dict or sequence by axis, or None."""
    if isinstance(spec, dict) and not all(isinstance(key, int) for key in spec):
        return [entry for value in spec.values() for entry in _per_tensor(value)]
    if isinstance(spec, list | tuple) and any(isinstance(s, dict | list | tuple) for s in spec):
        return [entry for value in spec for entry in _per_tensor(value)]
    return [spec]
