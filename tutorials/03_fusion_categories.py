"""Tutorial 3: which operators become one kernel, and why.

    python tutorials/03_fusion_categories.py

Fusion needs three answers. How does each operator read its inputs (its category)? Where does what
it makes come together again (its post-dominator)? May a category follow another (the table)? This
script asks each of them about one small graph, then fuses it. Read it from top to bottom.
"""

from __future__ import annotations

import re

import numpy as np
import tvm
from stage_printing import columns, show, title
from tvm import relax

from relax_passes.analysis.category import Category, categorize
from relax_passes.analysis.cost import kernel_cost
from relax_passes.analysis.fusion_table import FUSION_TABLE, When
from relax_passes.analysis.graph_summary import summarize_graph
from relax_passes.analysis.post_dominator import immediate_post_dominators
from relax_passes.build import build_executable
from relax_passes.fuse_operators import fuse_operators
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import Pipeline, default_pipeline
from relaxc.drawing.fusion_groups import fusion_groups
from tir_schedules.machine import Machine, host_target

ROWS, COLUMNS = 32, 64


def small_graph() -> tvm.IRModule:
    """Return one operator of every category, a bias, a diamond, and a tensor with two readers."""
    op, nn = relax.op, relax.op.nn
    rng = np.random.default_rng(0)
    weight = relax.const(rng.standard_normal((COLUMNS, COLUMNS)).astype("float32") / 8)
    bias = relax.const(rng.standard_normal(COLUMNS).astype("float32"))
    places = relax.const(rng.integers(0, COLUMNS, (2, ROWS)))
    ones = relax.const(np.ones((2, ROWS), "float32"))
    x = relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float32"))
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", [x]):
        with builder.dataflow():
            product = emit(op.matmul(x, weight), "product")
            shifted = emit(op.add(product, bias), "shifted")
            hidden = emit(nn.relu(shifted), "hidden")
            left = emit(op.exp(emit(op.negative(hidden), "minus")), "left")
            right = emit(op.tanh(hidden), "right")
            joined = emit(op.add(left, right), "joined")
            turned = emit(op.permute_dims(joined), "turned")
            scaled = emit(op.multiply(turned, relax.const(np.float32(3))), "scaled")
            chances = emit(nn.softmax(scaled, axis=-1), "chances")
            spread = emit(op.scatter_elements(chances, places, ones), "spread")
            result = builder.emit_output(op.sqrt(spread), "result")
        builder.emit_func_output(result)
    return builder.get()


def context() -> PassContext:
    target = host_target(threads=1)
    return PassContext(target, Machine.from_target(target))


def calls(module: tvm.IRModule) -> list[relax.Binding]:
    """Return the bindings of `main` that call a kernel."""
    (block,) = module["main"].body.blocks
    call_tir = tvm.ir.Op.get("relax.call_tir")
    return [b for b in block.bindings if getattr(b.value, "op", None) == call_tir]


def kernel_of(module: tvm.IRModule, binding: relax.Binding) -> tvm.tirx.PrimFunc:
    return module[binding.value.args[0]]


def run(module: tvm.IRModule, pipeline: Pipeline, x: np.ndarray) -> np.ndarray:
    """Carry a module through the rest of the pipeline and call it."""
    ctx = context()
    executable = build_executable(pipeline.run(module, ctx), ctx)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def decision(producer: Category, consumer: Category) -> str:
    """Return what the table says of a pair."""
    entry = FUSION_TABLE.get((producer, consumer))
    return "no" if entry is None else entry.when.value


def main() -> None:
    title("Stage 1: lower. Every operator is a call of a loop nest, and nothing is fused yet")
    module = default_pipeline().until("lower").run(small_graph(), context())
    nodes = calls(module)
    show(module["main"].script(show_meta=False), most=40)

    title("Stage 2: categories. How does an element of the result read the inputs?")
    print("The verdict is read from the loop nest: here are two accesses of each deciding block.\n")
    verdicts = {b.var.name: categorize(kernel_of(module, b)) for b in nodes}
    rows = []
    for name, verdict in verdicts.items():
        accesses = [f"{a.buffer}[{_plain(a.indices)}]" for a in verdict.accesses[:2]]
        rows.append((name, verdict.category.name.lower(), verdict.anchor, ", ".join(accesses)))
    columns(rows, "tensor", "category", "block", "reads")
    print(
        "\n`shifted` reads the bias by one of its two axes: broadcast. `turned` reads elsewhere:"
        "\ninjective. `chances` reads whole rows: a reduction. `product` reads two operands along"
        "\none axis: complex, though an epilogue may follow it in registers. `spread` writes where"
        "\nother data says, which no map of its result can tell: opaque."
    )
    category = {name: verdict.category for name, verdict in verdicts.items()}

    title("Stage 3: post-dominators. Where does a tensor's effect come together again?")
    number = {b.var.name: i for i, b in enumerate(nodes)}
    graph = summarize_graph(module)["nodes"]
    names = [node["name"] for node in graph]
    readers: list[list[int]] = [[] for _ in nodes]
    for node in graph:
        for source in node["reads"]:
            if isinstance(source, int) and node["name"] in number and names[source] in number:
                readers[number[names[source]]].append(number[node["name"]])
    escapes = [not isinstance(b.var, relax.DataflowVar) for b in nodes]
    dominator = immediate_post_dominators(readers, escapes)
    order = list(number)
    columns(
        [
            (name, ", ".join(order[r] for r in readers[i]) or "the caller", _name(order, d))
            for i, (name, d) in enumerate(zip(order, dominator, strict=True))
        ],
        *("tensor", "read by", "post-dominator"),
    )
    print(
        "\n`hidden` has two readers. Every path from it goes through `joined`: both branches lie"
        "\nbetween the two, so all of them join or none does, and a kernel has one result."
    )

    title("Stage 4: the table. May a kernel of one category take in its reader?")
    short = {When.ALWAYS: "always", When.SAME_SHAPE: "same shape", When.EPILOGUE_OPERAND: "side"}
    kinds = list(Category)
    grid = []
    for producer in kinds:
        entries = [FUSION_TABLE.get((producer, consumer)) for consumer in kinds]
        cells = ["no" if e is None else short[e.when] for e in entries]
        grid.append((producer.name.lower(), *cells))
    columns(grid, "producer \\ consumer", *(kind.name.lower() for kind in kinds))
    print("\nReasons and conditions are in docs/fusion.md, which is printed from the same table.")
    print("Each tensor asks about its post-dominator, before anything has joined:\n")
    pairs = [(name, _name(order, d)) for name, d in zip(order, dominator, strict=True)]
    columns(
        [
            (f"{a} -> {b}", category[a].name.lower(), category[b].name.lower(), decision(*pair))
            for a, b in pairs
            if b in category and (pair := (category[a], category[b]))
        ],
        *("pair", "producer", "consumer", "the table says"),
    )

    title("Stage 5: fuse. Anchors take their epilogue first, then chains, then reductions")
    ctx = context()
    fused, _ = fuse_operators(module, ctx)
    groups = fusion_groups(summarize_graph(module, costs=True), summarize_graph(fused), [])
    group_rows = [(g.name, g.kernel, " ".join(m["name"] for m in g.members)) for g in groups]
    columns(group_rows, "kernel's result", "kernel", "what it computes")
    home = {m["name"]: g.name for g in groups for m in g.members}
    grown = {g.name: max(category[m["name"]] for m in g.members) for g in groups}
    print("\nThe pairs that stayed apart:\n")
    for a, b in pairs:
        if b in category and home[a] != home[b]:
            met = (grown[home[a]], grown[home[b]])
            assert met not in FUSION_TABLE
            print(f"    {a} | {b}: {met[0].name.lower()} before {met[1].name.lower()}: no")
    print("\nA kernel has the greatest category of what it holds. So the bias, the diamond and the")
    print("activation share the matrix product's, and the transpose may not follow that.")
    before = [kernel_cost(kernel_of(module, b))[1] for b in nodes]
    after = [kernel_cost(kernel_of(fused, b))[1] for b in calls(fused)]
    print(f"\n    kernels {len(before)} -> {len(after)}, bytes {sum(before):,} -> {sum(after):,}")
    assert len(after) < len(before) and sum(after) < sum(before)
    assert home["hidden"] == home["joined"] == home["product"], "the diamond is an epilogue"

    title("Stage 6: how far? `max_blocks` bounds the compute blocks of a kernel")
    rows = []
    for most in (1, 2, 4, 48):
        bounded, _ = fuse_operators.with_options(max_blocks=most)(module, context())
        rows.append((most, len(calls(bounded))))
    columns(rows, "max_blocks", "kernels")
    print("\nOn the command line: relaxc compile m.onnx --pass-options 'fuse{max_blocks=4}'")

    title("Stage 7: same numbers, fused or not")
    x = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype("float32")
    whole = run(small_graph(), default_pipeline(), x)
    apart = run(small_graph(), default_pipeline().without("fuse"), x)
    error = float(np.abs(whole - apart).max() / np.abs(apart).max())
    print(f"    largest difference relative to the largest value: {error:.1e}")
    assert error < 1e-5


def _name(order: list[str], node: int | None) -> str:
    return "none" if node is None else order[node]


def _plain(indices: str) -> str:
    """Return index expressions without the types of their numbers."""
    return re.sub(r"T\.int64\((\d+)\)", r"\1", indices)


if __name__ == "__main__":
    main()
