"""Tutorial 6: choose the layout in which each value is computed.

    python tutorials/06_layout.py

A convolution is fastest on blocks of channels, a layer norm on channels last, and a transform
between the two moves every byte. The script shows what a layout is, what the operators of a small
network demand, how the choice with the least cost is found, and what is left of the transforms.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import tvm
from stage_printing import columns, title
from tvm import relax
from tvm.relax import op as R

from relax_passes.assign_layout import assign_layout
from relax_passes.layout.blocked import pack_constant
from relax_passes.layout.choice_problem import ChoiceProblem, solve
from relax_passes.layout.demand import PLAIN
from relax_passes.layout.demands import demand_of
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.plan import plan_layouts
from relax_passes.pass_base import PassContext
from tir_schedules.machine import Machine, host_target

TARGET = host_target(1)
MACHINE = Machine.from_target(TARGET)
LANES = Lanes(MACHINE.lanes(), fill_up=True)
RNG = np.random.default_rng(6)


def weights(*shape: int) -> relax.Expr:
    """Return a constant of random values."""
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def what_a_layout_is() -> None:
    """Print one pixel's channels in blocks of four, the last one filled up."""
    title("NCHW[4]c: six channels are two blocks of four, the last one filled up by zeros")
    image = np.arange(6.0).reshape(1, 6, 1, 1)
    for number, block in enumerate(pack_constant(image, 4)[0, :, 0, 0]):
        print(f"    block {number}: {block}")
    print("\nLanes that fill up meet zero weights in the next convolution, so nothing reads them.")


def network() -> tvm.IRModule:
    """Return a stem, a block as in ConvNeXt, whose norm is channels last, and a head."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 64, 64), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            stem = bb.emit(R.nn.conv2d(x, weights(96, 3, 4, 4), strides=4), "stem")
            first = bb.emit(R.nn.relu(stem), "stem_relu")
            depth = R.nn.conv2d(first, weights(96, 1, 7, 7), padding=3, groups=96)
            depth = bb.emit(depth, "depthwise")
            last = bb.emit(R.permute_dims(depth, [0, 2, 3, 1]), "to_channels_last")
            scale, shift = weights(96), weights(96)
            norm = bb.emit(R.nn.layer_norm(last, scale, shift, [-1]), "norm")
            product_ = bb.emit(R.matmul(norm, weights(96, 96)), "product")
            back = bb.emit(R.permute_dims(product_, [0, 3, 1, 2]), "to_channels_first")
            total = bb.emit(R.add(back, first), "residual")
            head = bb.emit(R.nn.conv2d(total, weights(24, 96, 1, 1)), "head")
            out = bb.emit_output(R.mean(head, [2, 3]), "pooled")
        bb.emit_func_output(out)
    return bb.finalize()


def name_of(layout: int, channels: int) -> str:
    """Return how a layout is called."""
    if layout == PLAIN:
        return "NCHW"
    return "NHWC" if layout == channels > LANES.count else f"NCHW{layout}c"


def what_operators_demand(mod: tvm.IRModule) -> None:
    """Print the layouts that each value may be computed in, and the cycles of its kernel."""
    title(
        "What each operator demands: the layouts of its result, and what its kernel takes in each"
    )
    rows = []
    for binding in mod["main"].body.blocks[0].bindings:
        demand = demand_of(binding.value, LANES, MACHINE.fma_units, mod)
        if demand is None:
            rows.append((binding.var.name, "NCHW only"))
            continue
        channels = int(binding.var.ty.shape[1])
        costs = [f"{name_of(b, channels)} {c / 1e3:.0f}" for b, c in demand.results.items()]
        rows.append((binding.var.name, ", ".join(costs)))
    columns(rows, "value", "thousands of cycles")


def how_the_least_cost_is_found() -> None:
    """Solve a problem of three nodes by folding, and by trying all choices."""
    title("A choice problem: nodes are values, edges the transforms between them")
    problem = ChoiceProblem()
    problem.node("conv", [9, 2])  # in NCHW, in blocks
    problem.node("norm", [1, np.inf])  # in NCHW only
    problem.node("sum", [1, 1])
    transform = np.array([[0.0, 4.0], [4.0, 0.0]])
    for a, b in (("conv", "norm"), ("norm", "sum"), ("conv", "sum")):
        problem.edge(a, b, transform)
    costs = {}
    for choice in product(range(2), repeat=3):
        named = dict(zip(problem.costs, choice, strict=True))
        own = sum(problem.costs[name][i] for name, i in named.items())
        pairs = [("conv", "norm"), ("norm", "sum"), ("conv", "sum")]
        costs[choice] = own + sum(transform[named[a], named[b]] for a, b in pairs)
    columns(
        [(*(("NCHW", "blocks")[i] for i in choice), cost) for choice, cost in costs.items()],
        *problem.costs,
        "cost",
    )
    solution = solve(problem)
    assert solution.cost == min(costs.values())
    print(
        "\nA node of at most two neighbours is folded into them: for each pair of their layouts,"
        "\nits least cost is added to their edge. What is left is solved at once, by a choice of"
        f"\ncost {solution.cost:g}; no other costs less: {solution.is_optimal}."
    )


def what_is_chosen(mod: tvm.IRModule) -> None:
    """Print the layout of each value, and count the transforms that are left."""
    title("The choice for the network")
    plan = plan_layouts(mod["main"], LANES, MACHINE, mod)
    rows = []
    for binding in mod["main"].body.blocks[0].bindings:
        if demand_of(binding.value, LANES, MACHINE.fma_units, mod) is not None:
            layout, channels = plan.layouts.get(binding.var, PLAIN), int(binding.var.ty.shape[1])
            rows.append((binding.var.name, channels, name_of(layout, channels)))
    columns(rows, "value", "channels", "layout")
    ctx = PassContext(TARGET, MACHINE)
    assign_layout(mod, ctx)
    print(f"\n{ctx.log.fired[0][1]}.")
    assert plan.is_optimal
    depthwise = next(v for v in plan.layouts if v.name == "depthwise")
    assert plan.layouts[depthwise] == 96, "the norm reads what the convolution wrote, as it is"


def main() -> None:
    """Run the tutorial."""
    what_a_layout_is()
    mod = network()
    what_operators_demand(mod)
    how_the_least_cost_is_found()
    what_is_chosen(mod)


if __name__ == "__main__":
    main()
