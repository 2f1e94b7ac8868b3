"""Operators that hold graphs: torch.cond, while_loop, scan and map, and regions to be inlined.

torch passes all that such a graph reads as arguments, so each graph is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax

from frontends.control_flow.private_function import PrivateFunction
from frontends.control_flow.repetition import Limit, Repetition, Step
from frontends.control_flow.rows import join_rows, one_row, take_row
from frontends.control_flow.unrolled import MOST_NODES, unrolled
from frontends.torch.dtypes import dtype_name
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.registry import converter


@converter("cond")
def conditional(
    b: GraphBuilder,
    predicate: Value,
    then: torch.fx.GraphModule,
    other: torch.fx.GraphModule,
    operands: Sequence[Value],
) -> tuple[Value, ...]:
    """Import the branch that a known predicate selects in place, or call one of two functions."""
    known = _known(b, predicate)
    if known is not None:
        return _results(b, b.run_subgraph(then if known else other, operands))
    functions, name = b.functions, b.node.name

    def define(graph: torch.fx.GraphModule, branch: str) -> PrivateFunction:
        def run() -> tuple[None, list[relax.Expr]]:
            results = b.run_subgraph(graph, [b.captured(value) for value in operands])
            return None, [b.state(result) for result in results if result is not None]

        return functions.define(f"{name}_{branch}", run)

    # Both are defined before either is called: a call ends what the block has open.
    branches = define(then, "then"), define(other, "else")
    chosen = functions.branch(_flag(b, predicate), *(functions.call(branch) for branch in branches))
    types = [_type(b, fake) for fake in b.node.meta["val"] if fake is not None]
    items = functions.emit_tuple(chosen, name, types)
    b.symbols.define(size for _, sizes in types for size in sizes)
    return _results(b, items)


@converter("while_loop")
def while_loop(
    b: GraphBuilder,
    test: torch.fx.GraphModule,
    body: torch.fx.GraphModule,
    carried: Sequence[Value],
    extra: Sequence[Value],
) -> tuple[Value, ...]:
    """Run the body on what it returned as long as the test holds."""
    start = b.run_subgraph(test, [*carried, *extra])[0]
    known = _known(b, start)
    if known is False:
        return _results(b, carried)
    last: list[bool | None] = []

    def unrolled_step(
        index: int, states: list[Value]
    ) -> tuple[bool | None, list[Value], list[Value]]:
        after = b.run_subgraph(body, [*states, *extra])
        last.append(_known(b, b.run_subgraph(test, [*after, *extra])[0]))
        return last[-1], after, []

    count = MOST_NODES // max(_operators(test) + _operators(body), 1)
    if known and count:
        done = unrolled(count, carried, unrolled_step)
        if done is not None and last[-1] is False:
            return _results(b, done[0])

    def step(index: Size, states: list[relax.Expr]) -> Step:
        others = [b.captured(value) for value in extra]
        after = b.run_subgraph(body, [*states, *others])
        again = b.run_subgraph(test, [*after, *others])[0]
        known = _known(b, again)
        return Step(_flag(b, again) if known is None else known, [b.state(v) for v in after], [])

    final, _ = _repeat(b, step, None).run(
        [b.state(value) for value in carried], True if known else _flag(b, start)
    )
    return _results(b, final)


@converter("scan")
def scan(
    b: GraphBuilder,
    combine: torch.fx.GraphModule,
    init: Sequence[Value],
    xs: Sequence[Value],
    extra: Sequence[Value],
) -> tuple[Value, ...]:
    """Run over the rows of `xs`; return the last states, and the outputs of all steps as rows."""
    scanned = [b.tensor(x) for x in xs]
    (length, *_), carried = b.shape(scanned[0]), len(init)

    def run(
        index: Size, states: Sequence[Value], rows: Sequence[Value], others: Any
    ) -> list[Value]:
        slices = [take_row(b.functions, x, 0, index) for x in rows]
        return b.run_subgraph(combine, [*states, *slices, *others])

    def unrolled_step(index: int, states: list[Value]) -> tuple[bool, list[Value], list[Value]]:
        after = run(index, states, scanned, extra)
        return True, after[:carried], after[carried:]

    if isinstance(length, int) and 0 < length * max(_operators(combine), 1) <= MOST_NODES:
        done = unrolled(length, list(init), unrolled_step)
        assert done is not None
        columns = [[one_row(b.functions, b.state(row)) for row in column] for column in done[1]]
        stacked = [join_rows(b.functions, column) for column in columns]
        return _results(b, [*done[0], *stacked])

    def step(index: Size, states: list[relax.Expr]) -> Step:
        rows, others = [[b.captured(value) for value in group] for group in (scanned, extra)]
        after = [b.state(value) for value in run(index, states, rows, others)]
        return Step(True, after[:carried], after[carried:])

    final, rows = _repeat(b, step, Limit(size=length)).run([b.state(value) for value in init])
    return _results(b, [*final, *rows])


@converter("map_impl")
def map_rows(
    b: GraphBuilder, body: torch.fx.GraphModule, xs: Sequence[Value], extra: Sequence[Value]
) -> tuple[Value, ...]:
    """Run the body on each row of `xs`: a scan that carries nothing."""
    return scan(b, body, [], xs, extra)


@converter("invoke_subgraph")
def invoke_subgraph(
    b: GraphBuilder, body: torch.fx.GraphModule, identifier: str, *operands: Value
) -> tuple[Value, ...]:
    """Import a region that torch compiles once and calls often: in place, each time."""
    return _results(b, b.run_subgraph(body, operands))


def _repeat(b: GraphBuilder, step: Any, limit: Limit | None) -> Repetition:
    """Return a loop whose body knows the number of its step."""

    def body(index: Size, states: list[relax.Expr]) -> Step:
        b.loop_indices.append(index)
        try:
            return step(index, states)
        finally:
            b.loop_indices.pop()

    return Repetition(b.functions, b.node.name, body, lambda: limit)


def _known(b: GraphBuilder, predicate: Value) -> bool | None:
    """Return a predicate that does not depend on the run, else None."""
    if isinstance(predicate, torch.SymBool):
        predicate = b.symbols.condition(predicate)
    if isinstance(predicate, torch.Tensor):
        return bool(predicate.item())
    return predicate if isinstance(predicate, bool) else None


def _flag(b: GraphBuilder, predicate: Value) -> relax.Expr:
    return b.reshape(b.tensor(predicate), [])


def _operators(graph: torch.fx.GraphModule) -> int:
    return sum(node.op == "call_function" for node in graph.graph.nodes)


def _type(b: GraphBuilder, fake: Any) -> tuple[str, list[Size]]:
    """Return the dtype and the sizes of a result."""
    if not isinstance(fake, torch.Tensor):
        return "int64", []
    return dtype_name(fake.dtype), b.symbols.shape(fake.shape)


def _results(b: GraphBuilder, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return what the node returns: of torch's sizes; an integer gives torch's symbol its value."""
    results: list[Value] = []
    given = iter(value for value in values if value is not None)
    for fake in b.node.meta["val"]:
        if fake is None:
            results.append(None)
        elif isinstance(fake, torch.Tensor):
            value = next(given)
            constant = isinstance(value, torch.Tensor)
            results.append(value if constant else b.matched(b.state(value), fake))
        else:
            value = next(given)
            if isinstance(value, int):
                b.symbols.bind(fake, value)
            else:
                b.define_sizes(b.reshape(value, [1]), [b.symbols.size(fake)])
            results.append(fake)
    return tuple(results)
