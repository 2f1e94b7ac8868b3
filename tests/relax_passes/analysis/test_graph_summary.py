"""A graph as plain data: nodes by tensor, edges through aliases and tuples, costs of kernels."""

from __future__ import annotations

import json

import tvm
from tvm import relax

from relax_passes import record_graphs
from relax_passes.analysis.graph_summary import summarize_graph
from relax_passes.lower_operators import lower_operators
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import context, module, weights

op = relax.op


def split_and_join(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Return exp(left half) @ w, joined with the right half, and a weight."""
    halves = bb.emit(op.split(x, 2, axis=1), "halves")
    left = bb.emit(relax.TupleGetItem(halves, 0), "left")
    right = bb.emit(relax.TupleGetItem(halves, 1), "right")
    product = bb.emit(op.matmul(bb.emit(op.exp(left), "bent"), weights(4, 4)), "product")
    return op.concat([product, right], axis=1)


def test_nodes_read_through_tuples_and_name_their_weights() -> None:
    graph = summarize_graph(module((2, 8), split_and_join))
    assert [node["op"] for node in graph["nodes"]] == ["split", "exp", "matmul", "concat"]
    split, bent, product, joined = graph["nodes"]
    assert split["reads"] == ["x"] and split["type"] == "(float32[2,4], float32[2,4])"
    assert bent["reads"] == [0] and bent["type"] == "float32[2,4]"
    assert product["reads"] == [1] and product["weights"] == ["float32[4,4]"]
    assert joined["reads"] == [0, 2] and graph["outputs"] == [3] and graph["inputs"] == ["x"]
    assert json.loads(json.dumps(graph)) == graph


def test_kernels_have_categories_and_costs() -> None:
    lowered, _ = lower_operators(module((2, 8), split_and_join), context())
    graph = summarize_graph(lowered, costs=True)
    by_name = {node["name"]: node for node in graph["nodes"]}
    assert by_name["product"]["category"] == "complex_out_fusable"
    assert by_name["product"]["flops"] >= 2 * 2 * 4 * 4  # columns are padded to lanes
    assert by_name["bent"]["category"] == "elementwise"
    assert by_name["bent"]["bytes"] == 2 * 2 * 4 * 4


def symbolic() -> tvm.IRModule:
    return module((tvm.tirx.Var("n", "int64"), 4), lambda bb, x: op.exp(x))


def test_symbolic_sizes_are_named() -> None:
    (node,) = summarize_graph(symbolic())["nodes"]
    assert node["type"] == "float32[n,4]"


def test_the_pipeline_keeps_three_graphs_but_no_unreadable_one(monkeypatch: object) -> None:
    ctx = context()
    default_pipeline().run(symbolic(), ctx)
    assert list(ctx.log.metrics["graphs"]) == ["import", "lower", "schedule"]
    monkeypatch.setattr(record_graphs, "_MOST_BINDINGS", 0)  # type: ignore[attr-defined]
    ctx = context()
    default_pipeline().run(symbolic(), ctx)
    assert "graphs" not in ctx.log.metrics
    assert any("nobody can read" in reason for _, _, reason in ctx.log.declined)
