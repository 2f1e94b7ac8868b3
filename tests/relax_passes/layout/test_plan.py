"""The plan weighs kernels against transforms, and follows what is next to a value."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.assign_layout import assign_layout
from relax_passes.layout.demand import PLAIN
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.plan import plan_layouts
from relax_passes.lower_operators import lower_operators
from tests.relax_passes.pass_checks import check, context, module, normal, weights
from tests.relax_passes.test_assign_layout import Emit

R = relax.op


def layouts(mod: tvm.IRModule, lanes: int = 8, fill_up: bool = True) -> list[int]:
    """Return the layout of each value of the main function, in their order."""
    plan = plan_layouts(mod["main"], Lanes(lanes, fill_up), context().machine, mod)
    assert plan.is_optimal
    variables = [b.var for block in mod["main"].body.blocks for b in block.bindings]
    return [plan.layouts.get(var, PLAIN) for var in variables]


def chain(*steps: str, channels: int = 24) -> tvm.IRModule:
    """Return a chain on (1, channels, 14, 14); each step is an operator by its short name."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for step in steps:
            x = bb.emit(_step(step, x, channels))
        return x

    return module((1, channels, 14, 14), build)


def _step(name: str, x: relax.Expr, channels: int) -> relax.Expr:
    dense, depthwise = weights(channels, channels, 3, 3), weights(channels, 1, 3, 3)
    steps = {
        "conv": lambda: R.nn.conv2d(x, dense, padding=1),
        "depthwise": lambda: R.nn.conv2d(x, depthwise, padding=1, groups=channels),
        "relu": lambda: R.nn.relu(x),
        "softmax": lambda: R.nn.softmax(x, axis=1),
        "to last": lambda: R.permute_dims(x, [0, 2, 3, 1]),
        "to first": lambda: R.permute_dims(x, [0, 3, 1, 2]),
        "norm": lambda: R.nn.softmax(x, axis=-1),
    }
    return steps[name]()


def test_elementwise_operators_alone_stay_in_nchw() -> None:
    assert layouts(chain("relu", "relu")) == [PLAIN] * 3


def test_what_lies_between_convolutions_takes_their_blocks() -> None:
    assert layouts(chain("conv", "relu", "conv", "relu"))[:4] == [8, 8, 8, 8]


def test_what_only_an_operator_of_nchw_reads_is_transformed_once() -> None:
    assert layouts(chain("conv", "relu", "softmax", "relu"))[:4] == [8, 8, PLAIN, PLAIN]


def test_an_operator_joins_the_convolution_it_reads_before_the_transform_of_its_result() -> None:
    """Behind the transform it would be a kernel of its own."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        x = bb.emit(_step("conv", x, 24))
        return R.divide(x, relax.const(np.float32(6)))

    assert layouts(module((1, 24, 14, 14), build)) == [8, 8]


def test_a_residual_of_the_input_is_added_in_blocks() -> None:
    """One transform of the input serves the convolution and the sum, which joins its kernel."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(_step("conv", x, 24))
        return R.add(bb.emit(R.multiply(y, bb.emit(R.tanh(y)))), x)

    mod = module((1, 24, 14, 14), build)
    assert layouts(mod) == [8] * 4
    ctx = context()
    check(assign_layout, mod, normal(1, 24, 14, 14), ctx=ctx, finish=lower_operators)
    assert ctx.log.metrics["layout_transforms"] == 2


def test_one_transform_serves_several_readers_of_another_layout() -> None:
    """As at the head of a stage of ConvNeXt: the bias stays with the convolution before it."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        x = bb.emit(R.add(bb.emit(_step("conv", x, 24)), weights(24, 1, 1)))
        y = bb.emit(_step("depthwise", x, 24))
        for step in ("to last", "norm", "to first"):
            y = bb.emit(_step(step, y, 24))
        return R.permute_dims(bb.emit(R.add(x, y)), [0, 2, 3, 1])

    mod = module((1, 24, 14, 14), build)
    assert layouts(mod)[:3] == [8, 8, 24] and layouts(mod)[5:7] == [24, 24]


def test_a_depthwise_convolution_between_operators_of_nhwc_is_one_of_nhwc() -> None:
    """As in ConvNeXt: no transform is left, where blocks would take four."""
    mod = chain("to last", "norm", "to first", "depthwise", "to last", "norm", "to first")
    assert layouts(mod)[2:4] == [24, 24]
    ctx = context()
    check(assign_layout, mod, normal(1, 24, 14, 14), finish=lower_operators, ctx=ctx)
    assert ctx.log.metrics["layout_transforms"] == 0


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_depthwise_convolutions_of_nhwc_give_the_same_numbers(lanes: int) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [0, 3, 1, 2]))
        y = bb.emit(R.nn.conv2d(y, weights(48, 1, 5, 5), strides=2, padding=2, groups=48))
        y = bb.emit(R.nn.relu(bb.emit(R.add(y, weights(48, 1, 1)))))
        return R.permute_dims(y, [0, 2, 3, 1])

    mod = module((2, 11, 13, 48), build)
    changed = check(assign_layout, mod, normal(2, 11, 13, 48), finish=lower_operators)
    assert "NCHW48c" in changed.script()


def test_parts_of_a_concatenation_agree_on_a_block_that_ends_evenly() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left, right = (bb.emit(R.nn.conv2d(x, weights(n, 16, 1, 1))) for n in (12, 20))
        return R.nn.conv2d(bb.emit(R.concat([left, right], axis=1)), weights(16, 32, 1, 1))

    # 12 are two blocks of 6 where they stand alone, 20 are three of 8, the last one filled up.
    assert layouts(module((1, 16, 14, 14), build))[:3] == [4, 4, 4]


def test_a_gate_of_one_pixel_keeps_one_layout_so_that_it_fuses() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        x = bb.emit(R.nn.conv2d(x, weights(40, 16, 1, 1)))
        y = bb.emit(R.mean(x, [2, 3], keepdims=True))
        for channels, read in ((10, 40), (40, 10)):
            y = bb.emit(R.nn.conv2d(y, weights(channels, read, 1, 1)))
            y = bb.emit(R.sigmoid(bb.emit(R.add(y, weights(1, channels, 1, 1)))))
        return R.nn.conv2d(bb.emit(R.multiply(x, y)), weights(16, 40, 1, 1))

    conv, mean, *gate, scaled = layouts(module((1, 16, 14, 14), build))[:9]
    assert len(set(gate[:3])) == len(set(gate[3:])) == 1
    assert conv == mean == gate[-1] == scaled


def test_strict_blocks_end_evenly() -> None:
    assert layouts(chain("conv", "conv", channels=20))[0] == 8
    assert layouts(chain("conv", "conv", channels=20), fill_up=False)[0] == 4


def test_many_layers_take_linear_work() -> None:
    def residual(e: Emit, x: relax.Expr) -> relax.Expr:
        return e(R.add(x, e(R.nn.conv2d(x, weights(8, 8, 1, 1)))))

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(300):
            x = residual(bb.emit, x)
        return x

    assert layouts(module((1, 8, 4, 4), build))[:600] == [8] * 600


def test_a_value_without_elements_has_no_layout() -> None:
    mod = module((0, 8, 4, 4), lambda bb, x: R.nn.relu(R.nn.conv2d(x, weights(8, 8, 1, 1))))
    assert set(layouts(mod)) == {PLAIN}
    assert np.size(mod["main"].params[0].ty.shape) == 4


def test_branches_read_what_lies_outside_in_blocks_and_keep_their_own_to_themselves() -> None:
    """A version made in a branch is out of scope behind it, where another is made."""
    x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    p = relax.Var("p", relax.TensorType((), "bool"))
    outer = relax.Var("outer", x.ty)
    kernels = [weights(8, 8, 3, 3, seed=seed) for seed in range(4)]

    def branch(kernel: relax.Expr) -> relax.SeqExpr:
        first, second = relax.Var("first", x.ty), relax.Var("second", x.ty)
        bindings = [
            relax.VarBinding(first, R.nn.conv2d(outer, kernel, padding=1)),
            relax.VarBinding(second, R.nn.conv2d(first, kernels[3], padding=1)),
        ]
        return relax.SeqExpr([relax.BindingBlock(bindings)], second)

    chosen, third, last = (relax.Var(name, x.ty) for name in ("chosen", "third", "last"))
    bindings = [
        relax.VarBinding(outer, R.nn.relu(x)),
        relax.VarBinding(chosen, relax.If(p, branch(kernels[0]), branch(kernels[1]))),
        relax.VarBinding(third, R.nn.conv2d(outer, kernels[2], padding=1)),
        relax.VarBinding(last, R.add(chosen, third)),
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], last)
    mod = tvm.IRModule(
        {"main": relax.Function([p, x], body, x.ty).with_attr("global_symbol", "main")}
    )
    mod = relax.transform.Normalize()(mod)
    ctx = context()
    changed, modified = assign_layout(mod, ctx)
    assert modified
    relax.analysis.well_formed(changed)  # raises where something is read out of its scope
    assert ctx.log.fired[0][1].startswith("5 convolutions")
