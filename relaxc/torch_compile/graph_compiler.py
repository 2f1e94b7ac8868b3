"""One captured graph: made functional, imported, compiled or fetched, and wrapped for calls."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from frontends.torch.captured_graph import CapturedGraph
from frontends.torch.export_program import decompositions, keep_composites_whole
from frontends.torch.output_views import only_views
from relaxc.compiler import compile_imported, running_phase
from relaxc.errors import InvalidInput, RelaxcError
from relaxc.torch_compile.call_plan import CallPlan
from relaxc.torch_compile.frozen import FrozenGraph, parameter_places
from relaxc.torch_compile.graph_cache import GraphCache
from relaxc.torch_compile.options import BackendOptions, read_options
from relaxc.torch_compile.records import GraphRecord, record
from relaxc.torch_compile.shared_storage import SharedStorage, writes_arguments

_NUMBERS = itertools.count()


def compile_graph(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    mode: Any,
    options: Mapping[str, Any] | None,
) -> Callable[..., Any]:
    """Compile one graph; see `relaxc.torch_compile.backend`."""
    chosen = read_options(mode, options)
    needs_gradient = torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    )
    parameters = [] if needs_gradient else parameter_places(graph_module)
    compiler = _Compiler(chosen, parameters)
    trace = aot_autograd(
        fw_compiler=compiler.compile,
        bw_compiler=compiler.compile,
        inference_compiler=compiler.compile,
        decompositions=decompositions(),
    )
    with contextlib.nullcontext() if needs_gradient else keep_composites_whole():
        compiled = trace(graph_module, example_inputs)
    given = sum(isinstance(value, torch.Tensor) for value in example_inputs) - len(parameters)
    if not compiler.writes_arguments or given < 2:
        return compiled
    return SharedStorage(compiled, graph_module, example_inputs, parameters, chosen.strict)


class _Compiler:
    """Compiles the functional graphs that AOTAutograd makes of one captured graph.

    Attributes:
        writes_arguments: Whether one of those compiled so far writes to an argument.
    """

    def __init__(self, options: BackendOptions, parameters: Sequence[int]) -> None:
        """`parameters` are the places of arguments that stay from call to call."""
        self.options, self.parameters = options, parameters
        self.writes_arguments = False
        self.cache = GraphCache(options)

    def compile(self, graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return what runs the graph: compiled code, or eager where that is not possible."""
        name = f"graph_{next(_NUMBERS)}"
        self.writes_arguments |= writes_arguments()
        operators = sum(node.op == "call_function" for node in graph.graph.nodes)
        if not operators:
            return eager(graph)  # nothing to compute

        def build(constants: Mapping[int, torch.Tensor]) -> Callable[..., Any]:
            return self._or_eager(
                graph, name, operators, lambda: self._build(graph, constants, name, operators)
            )

        def first() -> Callable[..., Any]:
            if only_views(graph.graph):
                return eager(graph)
            if self.options.freeze and self.parameters:
                return FrozenGraph(build, self.parameters)
            return self._build(graph, {}, name, operators)

        with _unpatched():
            return self._or_eager(graph, name, operators, first)

    def _or_eager(
        self,
        graph: torch.fx.GraphModule,
        name: str,
        operators: int,
        build: Callable[[], Callable[..., Any]],
    ) -> Callable[..., Any]:
        """Return what `build` makes of a graph, or eager where it cannot, with the reason kept."""
        try:
            return build()
        except InvalidInput:  # an option: nothing that eager could do better
            raise
        except RelaxcError as fault:
            if self.options.strict:
                raise
            record(GraphRecord(name, "eager", str(fault), operators))
            return eager(graph)

    def _build(
        self,
        graph: torch.fx.GraphModule,
        constants: Mapping[int, torch.Tensor],
        name: str,
        operators: int,
    ) -> CallPlan:
        with running_phase("import"):
            captured = CapturedGraph(graph, constants, self.parameters)
        key = self.cache.key(graph, constants, self.parameters)
        model = self.cache.load(key)
        outcome = "cached" if model is not None else "compiled"
        if model is None:
            with running_phase("import"):
                imported = captured.import_model(name)
            model = compile_imported(imported, **self.options.compile_options())
            self.cache.save(key, model)
        record(GraphRecord(name, outcome, "", operators, model))
        return CallPlan(model, captured.arguments, captured.results, name, self.parameters)


def eager(graph: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return the graph itself, called as AOTAutograd calls compiled code."""

    def run(arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        return graph(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def _unpatched() -> Iterator[None]:
    """Run our own code outside of the tracing modes that surround a backend."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), torch.no_grad():
        yield
