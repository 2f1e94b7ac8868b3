"""What a graph looks like, as plain data that a report can keep: nodes, edges, costs.

A node is a binding of `main` that calls something; aliases, tuples and `match_cast` are looked
through. Names are those of the graph, which passes keep, so that a tensor can be followed from one
summary to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from relax_passes.analysis.category import categorize
from relax_passes.analysis.cost import kernel_cost

_CALL_TIR = "relax.call_tir"


def summarize_graph(mod: tvm.IRModule, *, costs: bool = False) -> dict[str, Any]:
    """Describe `main`.

    Args:
        mod: A module whose memory is not explicit yet.
        costs: Whether to tell the category, the FLOPs and the bytes of each kernel.

    Returns:
        `inputs` and `outputs`, names; `nodes` in order, each with `name`, `op`, `type` (such as
        "float32[1,64,56,56]"), `reads` (numbers of nodes, names of inputs), `weights` (types of the
        constants it reads), and with `costs` for calls of kernels `category`, `flops`, `bytes`.
    """
    walk = _Walk(mod, costs)
    main = mod["main"]
    for param in main.params:
        walk.sources[param] = [param.name]
    for block in main.body.blocks:
        for binding in block.bindings:
            walk.visit(binding)
    return {
        "inputs": [param.name for param in main.params],
        "outputs": [s for s in walk.sources_of(main.body.body) if isinstance(s, int | str)],
        "nodes": walk.nodes,
    }


class _Walk:
    def __init__(self, mod: tvm.IRModule, costs: bool) -> None:
        self.mod, self.costs = mod, costs
        self.nodes: list[dict[str, Any]] = []
        self.sources: dict[relax.Var, list[int | str]] = {}
        self._kernels: dict[str, dict[str, Any]] = {}

    def visit(self, binding: relax.Binding) -> None:
        """Take a binding as a node, or as other names of what it reads."""
        value, var = binding.value, binding.var
        if not isinstance(value, Call | relax.If):
            self.sources[var] = self.sources_of(value)
            return
        node = {"name": var.name, "op": self._operator(value), "type": type_text(var.ty)}
        node["reads"] = sorted(set(self.sources_of(value)), key=str)
        node["weights"] = [type_text(c.ty) for c in _constants(value) if _is_large(c)]
        if self.costs and _is_kernel(value):
            node.update(self._costs(value.args[0]))
        self.sources[var] = [len(self.nodes)]
        self.nodes.append(node)

    def sources_of(self, value: relax.Expr) -> list[int | str]:
        """Return the nodes and inputs that an expression reads."""
        return [s for var in _variables(value) for s in self.sources.get(var, [])]

    def _operator(self, value: relax.Expr) -> str:
        if isinstance(value, relax.If):
            return "if"
        if _is_kernel(value):
            return str(value.args[0].name_hint)
        name = getattr(value.op, "name", None) or getattr(value.op, "name_hint", "call")
        return str(name).removeprefix("relax.")

    def _costs(self, callee: tvm.ir.GlobalVar) -> dict[str, Any]:
        name = callee.name_hint
        if name not in self._kernels:
            func = self.mod[callee]
            flops, moved = kernel_cost(func)
            category = categorize(func).category.name.lower()
            self._kernels[name] = {"category": category, "flops": flops, "bytes": moved}
        return self._kernels[name]


def type_text(ty: Any) -> str:
    """Return a type as text, such as "float32[1,64,n]"."""
    if isinstance(ty, relax.TupleType):
        return "(" + ", ".join(type_text(field) for field in ty.fields) + ")"
    if not isinstance(ty, relax.TensorType):
        return ""
    shape = getattr(ty.shape, "values", None)
    if shape is None:
        dims = ["?"] * max(ty.ndim, 0)
    else:
        dims = [str(dim.value if isinstance(dim, tirx.IntImm) else dim) for dim in shape]
    return f"{ty.dtype}[{','.join(dims)}]"


def _is_kernel(value: relax.Expr) -> bool:
    return isinstance(value, Call) and value.op == tvm.ir.Op.get(_CALL_TIR)


def _is_large(constant: tvm.ir.GenericConst) -> bool:
    dims = getattr(getattr(constant.ty, "shape", None), "values", None)
    sizes = [int(d) for d in dims or () if isinstance(d, tirx.IntImm)]
    return math.prod(sizes) > 1


def _parts(value: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the leaves of an expression; of an If, what its branches read from outside too."""
    if isinstance(value, relax.If):
        yield from relax.analysis.free_vars(value)
    elif isinstance(value, Call):
        for arg in value.args:
            yield from _parts(arg)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _parts(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from _parts(value.tuple_value)
    else:
        yield value


def _variables(value: relax.Expr) -> list[relax.Var]:
    return [part for part in _parts(value) if isinstance(part, relax.Var)]


def _constants(value: relax.Expr) -> list[tvm.ir.GenericConst]:
    return [part for part in _parts(value) if isinstance(part, tvm.ir.GenericConst)]
