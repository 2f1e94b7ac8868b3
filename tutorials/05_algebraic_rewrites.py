"""Tutorial 5: rewrite a graph by algebra, one rule at a time.

    python tutorials/05_algebraic_rewrites.py

A rule is an equation in one line of text. This script reads one, matches it, weighs what goes
against what comes, and lets it fire; then it runs the whole table over a graph, shows what strict
precision forbids, why a rule declines, and how to write a rule of your own.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import tvm
from stage_printing import columns, show, title
from tvm import relax
from tvm.relax import op as R

from relax_passes.algebra.operator_cost import operator_cost
from relax_passes.algebra.pattern import Leaf, Node, Number, parse
from relax_passes.algebra.rewriter import Rewriter
from relax_passes.algebra.rule import Ieee, Rule
from relax_passes.algebra.rule_table import FAMILIES, RULES
from relax_passes.apply_algebraic_rules import apply_algebraic_rules
from relax_passes.pass_base import PassContext
from tir_schedules.machine import Machine, host_target

SHAPE = (1, 3, 16, 16)


def constant(*values: float) -> relax.Expr:
    """Return one number, or one for each channel."""
    array = np.array(values, "float32")
    return relax.const(array[0] if array.size == 1 else array.reshape(-1, 1, 1))


def small_graph() -> tvm.IRModule:
    """Return the normalization of an image, an activation, and a mean of a scaled image."""
    builder = relax.BlockBuilder()
    x = relax.Var("image", relax.TensorType(SHAPE, "float32"))
    emit = builder.emit
    with builder.function("main", [x]):
        with builder.dataflow():
            y = emit(R.divide(x, constant(256.0)))
            y = emit(R.subtract(y, constant(0.485, 0.456, 0.406)))
            y = emit(R.divide(y, constant(0.229, 0.224, 0.225)))
            y = emit(R.add(y, constant(0.0)))
            gate = emit(
                R.divide(
                    constant(1.0), emit(R.add(emit(R.exp(emit(R.negative(y)))), constant(1.0)))
                )
            )
            z = emit(R.multiply(y, gate))
            power = emit(R.sqrt(emit(R.power(z, constant(2.0)))))
            result = builder.emit_output(R.mean(emit(R.multiply(power, constant(3.0))), [2, 3]))
        builder.emit_func_output(result)
    return builder.get()


def drawn(node: Node, depth: int = 0) -> str:
    """Return the tree of a pattern, one node a line."""
    pad = "    " * (depth + 1)
    if isinstance(node, Leaf):
        return f"{pad}{node.name}: {'a constant' if node.is_constant else 'any tensor'}"
    if isinstance(node, Number):
        return f"{pad}the number {node.value}"
    inner = [drawn(operand, depth + 1) for operand in node.operands or ()]
    return "\n".join([f"{pad}{node.name}", *inner])


def cost_rows(func: relax.Function) -> list[tuple[object, ...]]:
    """Return what each operator of a function costs."""
    rows: list[tuple[object, ...]] = []
    for block in func.body.blocks:
        for binding in block.bindings:
            cost = operator_cost(binding.value)
            name = str(binding.value.op.name).removeprefix("relax.")
            rows.append((name, cost.flops, cost.bytes, cost.total))
    total = [sum(int(str(row[i])) for row in rows) for i in (1, 2, 3)]
    return [*rows, ("all", *total)]


def live(func: relax.Function) -> relax.Function:
    """Return a function without what nobody reads, with its types."""
    mod = relax.transform.Normalize()(tvm.IRModule({"main": func}))
    return relax.transform.DeadCodeElimination()(mod)["main"]


def run(mod: tvm.IRModule, image: np.ndarray) -> np.ndarray:
    """Build a module with TVM's own defaults and run it, once: its code is not optimized."""
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(image)).numpy()


def named(name: str) -> Rule:
    """Return a rule of the table."""
    return next(rule for rule in RULES if rule.name == name)


def main() -> None:
    """Walk from one equation to the whole table."""
    target = host_target()
    context = PassContext(target, Machine.from_target(target))
    graph = small_graph()

    title("1. A graph as people write it")
    show(graph["main"].script(show_meta=False))

    title("2. A rule is an equation; its left side is a pattern")
    rule = named("logistic")
    print(f"    {rule.equation}\n\n{drawn(parse(rule.left))}\n")
    print(f"    IEEE: {rule.ieee.value}\n    pays {rule.pays}")

    title("3. One rule fires: four operators become one")
    rewriter = Rewriter([rule], debug=True)  # debug: the whole cost is counted again
    once = live(rewriter.rewrite(graph["main"]))
    show(once.script(show_meta=False))
    print(f"fired {dict(rewriter.fired)}, saved {rewriter.saved}")

    title("4. Why it fires: what goes costs more than what comes")
    columns(cost_rows(graph["main"]), "before", "FLOPs", "bytes", "cost")
    print()
    columns(cost_rows(once), "after", "FLOPs", "bytes", "cost")
    print(
        "\nCost = FLOPs + 4 x bytes + calls. FLOPs are additions or what takes as long: a division"
        "\nis 4 of them, an exponential 16, a power 400. The rule fires because the sum falls, and"
        "\nsince it falls each time, rewriting ends."
    )

    title("5. The whole table, from operands to readers, until nothing fires")
    changed, _ = apply_algebraic_rules(graph, context)
    for _, what in context.log.fired:
        print(f"    {what:28s}{named(what.split(':')[0]).equation}")
    print()
    show(changed["main"].script(show_meta=False))
    columns(cost_rows(changed["main"]), "after all", "FLOPs", "bytes", "cost")

    title('6. precision="strict": only rules whose sides agree in every bit')
    strict = dataclasses.replace(context, precision="strict", log=type(context.log)())
    exact, _ = apply_algebraic_rules(graph, strict)
    print(f"    fired: {[what for _, what in strict.log.fired]}")
    image = np.random.default_rng(5).uniform(0, 255, SHAPE).astype("float32")
    wanted = run(graph, image)
    error = np.abs(run(changed, image) - wanted).max() / np.abs(wanted).max()
    same = np.array_equal(run(exact, image), wanted)
    print(f"    default: relative error {error:.1e}; strict: bit-equal is {same}")
    counts = [(f.name, len(f.rules), sum(r.ieee is Ieee.EXACT for r in f.rules)) for f in FAMILIES]
    print()
    columns(counts, "family", "rules", "exact")

    title("7. A rule declines: somebody else reads the inner value")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.add(x, constant(1.0)))
            z = builder.emit(R.add(y, constant(2.0)))
            out = builder.emit_output(R.multiply(y, z))
        builder.emit_func_output(out)
    rewriter = Rewriter([named("add_constants")])
    rewriter.rewrite(builder.get()["main"])
    for name, subject, reason in rewriter.declined:
        print(f"    {name} at {subject}: {reason}")

    title("8. A rule of your own: 1 + tanh(x / 2) is twice the logistic function")
    own = Rule(
        *("tanh_as_logistic", "1 + tanh(x * 0.5) = 2 * sigmoid(x)", Ieee.ROUNDING),
        "always: one operation less",
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.tanh(builder.emit(R.multiply(constant(0.5), x))))
            out = builder.emit_output(R.add(y, constant(1.0)))
        builder.emit_func_output(out)
    rewriter = Rewriter([own])
    show(live(rewriter.rewrite(builder.get()["main"])).script(show_meta=False))
    if error > 1e-5 or not same or not rewriter.fired:
        sys.exit("a rewritten graph is wrong")


if __name__ == "__main__":
    main()
