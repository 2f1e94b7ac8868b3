"""`torch.compile(module, backend="relaxc")`: graphs that Dynamo captures, compiled by relaxc.

Guards, recompilation, graph breaks and dynamic sizes are Dynamo's; mutation and aliasing are
AOTAutograd's. What is left is a functional graph of tensors, which goes the way every model goes.

    module -> Dynamo -> AOTAutograd -> frontends.torch.captured_graph -> relaxc.compiler -> CallPlan

`torch` finds the backend by the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["backend", "compiled_graphs"]


def backend(
    graph_module: Any, example_inputs: Any, *, mode: Any = None, options: Any = None
) -> Any:
    """Compile one graph that Dynamo captured; what `torch.compile` calls.

    Args:
        graph_module: The graph, with torch's own functions.
        example_inputs: Its arguments, parameters among them.
        mode: "default", or "max-autotune", which freezes parameters.
        options: See `relaxc.torch_compile.options.BackendOptions`.

    Raises:
        InvalidInput: If an option is unknown or does not fit.
        RelaxcError: With `options={"strict": True}`, whatever keeps the graph from being compiled.
    """
    from relaxc.torch_compile.graph_compiler import compile_graph

    return compile_graph(graph_module, example_inputs, mode, options)


def compiled_graphs() -> list[Any]:
    """Return what became of each graph since the process began, or since `clear`: newest last."""
    from relaxc.torch_compile.records import RECORDS

    return list(RECORDS)
