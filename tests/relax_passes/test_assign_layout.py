"""Convolution chains live in channel blocks; transforms stand only at the edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.assign_layout import assign_layout
from relax_passes.eliminate_dead_code import eliminate_dead_code
from relax_passes.layout.blocked import pack_constant, pack_kernel
from relax_passes.lower_operators import lower_operators
from tests.relax_passes.lowered_modules import structure
from tests.relax_passes.pass_checks import check, context, module, normal, operators, run, weights

R = relax.op
Emit = Callable[[relax.Expr], relax.Expr]
Middle = Callable[[Emit, relax.Expr], relax.Expr]


def between(middle: Middle, channels: int = 16) -> tvm.IRModule:
    """Return conv -> `middle` -> conv on 3 input channels."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = bb.emit(R.nn.conv2d(x, weights(16, 3, 3, 3), padding=1))
        y = middle(bb.emit, first)
        return R.nn.conv2d(y, weights(8, channels, 1, 1, seed=1))

    return module((1, 3, 12, 12), build)


def assigned(
    mod: tvm.IRModule, shape: tuple[int, ...] = (1, 3, 12, 12)
) -> tuple[tvm.IRModule, int]:
    """Run the pass with all checks; return the new module and its count of transforms."""
    ctx = context()
    changed, modified = assign_layout(mod, ctx)
    assert modified
    transforms = ctx.log.metrics["layout_transforms"]
    check(assign_layout, mod, normal(*shape), finish=lower_operators)
    return changed, transforms


KEPT: dict[str, Middle] = {
    "relu": lambda e, y: e(R.nn.relu(y)),
    "clip": lambda e, y: e(R.clip(y, 0, 6)),
    "bias": lambda e, y: e(R.add(y, weights(1, 16, 1, 1))),
    "bias of rank 3": lambda e, y: e(R.add(weights(16, 1, 1), y)),
    "scalar": lambda e, y: e(R.multiply(y, relax.const(np.float32(3)))),
    "full constant": lambda e, y: e(R.add(y, weights(1, 16, 12, 12))),
    "residual": lambda e, y: e(R.add(y, e(R.nn.conv2d(y, weights(16, 16, 1, 1))))),
    "gate": lambda e, y: e(R.multiply(y, e(R.sigmoid(e(R.mean(y, [2, 3], keepdims=True)))))),
    "max pool": lambda e, y: e(R.nn.max_pool2d(y, (3, 3), strides=2, padding=1)),
    "avg pool": lambda e, y: e(R.nn.avg_pool2d(y, (2, 2), strides=2)),
    "depthwise": lambda e, y: e(R.nn.conv2d(y, weights(16, 1, 3, 3), groups=16, padding=1)),
    "grouped": lambda e, y: e(R.nn.conv2d(y, weights(16, 8, 3, 3), groups=2, padding=1)),
    "pad": lambda e, y: e(R.nn.pad(y, [0, 0, 0, 0, 1, 2, 1, 0])),
    "resize": lambda e, y: e(R.image.resize2d(y, (24, 24), method="nearest_neighbor")),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_lies_between_stays_in_blocks(kind: str) -> None:
    _, transforms = assigned(between(KEPT[kind]))
    assert transforms == 2  # the input and the output of the graph


def test_blocked_values_keep_their_names() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(16, 8, 3, 3), padding=1), "conv_out")
        y = bb.emit(R.nn.relu(y), "relu_out")
        return R.nn.max_pool2d(y, (2, 2), strides=2)

    changed, _ = assign_layout(module((1, 8, 6, 6), build), context())
    (block,) = changed["main"].body.blocks
    ranks = {binding.var.name: binding.var.ty.ndim for binding in block.bindings}
    assert (ranks["conv_out"], ranks["relu_out"]) == (5, 5)


def test_concatenation_of_equal_blocks_stays() -> None:
    mod = between(lambda e, y: e(R.concat([y, e(R.nn.relu(y))], 1)), channels=32)
    assert assigned(mod)[1] == 2


def test_a_stem_reads_three_channels_and_fills_up_what_it_writes() -> None:
    changed, _ = assigned(
        module((1, 3, 6, 6), lambda bb, x: R.nn.conv2d(x, weights(12, 3, 3, 3))), (1, 3, 6, 6)
    )
    (conv,) = (
        b.value
        for b in changed["main"].body.blocks[0].bindings
        if isinstance(b.value, tvm.ir.Call) and b.value.op.name == "relax.nn.conv2d"
    )
    attrs = conv.attrs
    assert (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)) == (
        "NCHW3c",
        "OIHW3i8o",
        "NCHW8c",
    )


def test_a_classifier_after_global_pooling_costs_no_transform() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(16, 3, 3, 3)))
        y = bb.emit(R.nn.adaptive_avg_pool2d(y, (1, 1)))
        return R.matmul(bb.emit(R.reshape(y, (1, 16))), weights(16, 10))

    assert assigned(module((1, 3, 8, 8), build), (1, 3, 8, 8))[1] == 1


def test_channels_last_neighbours_are_reached_by_one_transform_each() -> None:
    def middle(e: Emit, y: relax.Expr) -> relax.Expr:
        y = e(R.nn.softmax(e(R.permute_dims(y, [0, 2, 3, 1]))))
        return e(R.permute_dims(y, [0, 3, 1, 2]))

    assert assigned(between(middle))[1] == 3  # the second convolution sums over NHWC as it is


def test_an_operator_without_a_rule_gets_the_plain_layout() -> None:
    changed, transforms = assigned(between(lambda e, y: e(R.nn.softmax(y, axis=1))))
    assert transforms == 4
    assert operators(changed)["nn.softmax"] == 1


def test_a_result_in_blocks_is_returned_in_plain_layout() -> None:
    mod = module(
        (2, 8, 5, 5), lambda bb, x: R.nn.relu(bb.emit(R.nn.conv2d(x, weights(8, 8, 1, 1))))
    )
    changed, transforms = assigned(mod, (2, 8, 5, 5))
    assert transforms == 2
    assert [int(d) for d in changed["main"].ret_ty.shape.values] == [2, 8, 5, 5]


def test_symbolic_batch_and_pixels() -> None:
    n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")
    mod = module((n, 8, h, 6), lambda bb, x: R.nn.conv2d(x, weights(8, 8, 3, 3), padding=1))
    changed = check(assign_layout, mod)
    assert str(changed["main"].ret_ty) == str(mod["main"].ret_ty)


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "output_padding"),
    [
        (16, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0)),  # each output pixel has one tap
        (1, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0)),  # all phases of a pixel in one vector
        (3, (4, 4), (2, 2), (1, 1, 1, 1), (0, 0)),
        (8, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
        (8, (3, 3), (1, 1), (1, 1, 1, 1), (0, 0)),
        (8, (5, 2), (3, 2), (2, 0, 1, 1), (2, 0)),
        (4, (1, 1), (2, 3), (0, 0, 0, 0), (1, 0)),  # phases without a tap are zero
    ],
)
def test_a_transposed_convolution_is_one_convolution_of_phases(
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    output_padding: tuple[int, int],
) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        w = weights(8, channels, *kernel)
        y = R.nn.conv2d_transpose(
            x, w, strides=stride, padding=padding, output_padding=output_padding
        )
        return R.nn.relu(bb.emit(R.add(bb.emit(y), weights(1, channels, 1, 1))))

    changed, _ = assigned(module((2, 8, 5, 6), build), (2, 8, 5, 6))
    assert operators(changed)["nn.conv2d"] == 1
    assert operators(changed)["nn.conv2d_transpose"] == 0


def test_a_transposed_convolution_of_symbolic_size_keeps_its_type() -> None:
    h = tvm.tirx.Var("h", "int64")
    mod = module(
        (1, 8, h, 6),
        lambda bb, x: R.nn.conv2d_transpose(x, weights(8, 8, 2, 2), strides=(2, 2)),
    )
    changed = check(assign_layout, mod)
    assert operators(changed)["nn.conv2d_transpose"] == 0
    assert operators(changed)["strided_slice"] == 0
    assert changed["main"].ret_ty.ndim == 4


def test_a_grouped_transposed_convolution_declines() -> None:
    ctx = context()
    mod = module(
        (1, 8, 3, 3), lambda bb, x: R.nn.conv2d_transpose(x, weights(8, 4, 2, 2), groups=2)
    )
    check(assign_layout, mod, fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == "it has groups or dilation"


def test_a_symbolic_kernel_declines() -> None:
    ctx = context()
    size = tvm.tirx.Var("k", "int64")
    mod = module((4, 4, size, size), lambda bb, x: R.nn.conv2d(x, x))
    check(assign_layout, mod, fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == "its channels or its kernel are symbolic"


def test_weights_that_are_arguments_are_packed_in_each_run() -> None:
    ctx = context()
    mod = module((8, 8, 3, 3), lambda bb, x: R.nn.conv2d(x, x, padding=1))
    check(assign_layout, mod, normal(8, 8, 3, 3), finish=lower_operators, ctx=ctx)
    fired = next(text for name, text in ctx.log.fired if name == "assign_layout")
    assert fired.endswith("1 weights packed in each run")


def test_other_types_decline() -> None:
    ctx = context()
    half = relax.const(np.ones((4, 4, 1, 1), "float16"))
    mod = module((1, 4, 3, 3), lambda bb, x: R.nn.conv2d(x, half), "float16")
    check(assign_layout, mod, fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == "its type is float16"


def test_packing_moves_each_element_to_its_place() -> None:
    w = np.arange(16 * 4 * 3 * 2).reshape(16, 4, 3, 2)
    packed = pack_kernel(w, 2, 8)
    assert packed.shape == (2, 2, 3, 2, 2, 8)
    assert packed[1, 0, 2, 1, 1, 5] == w[13, 1, 2, 1]
    bias = np.arange(16).reshape(16, 1, 1)
    assert pack_constant(bias, 8).shape == (1, 2, 1, 1, 8)
    assert pack_constant(bias, 8)[0, 1, 0, 0, 3] == 11


@pytest.mark.parametrize(
    ("channels", "groups", "padding", "copied"),
    [
        (3, 1, 1, 0),
        (1, 1, 0, 0),
        (4, 1, 0, 0),
        (5, 1, 1, 1),  # vectors of channels pay for a transform
        (3, 3, 1, 1),  # a depthwise convolution computes on vectors of channels
    ],
)
def test_a_convolution_takes_an_image_of_few_channels_as_it_is(
    channels: int, groups: int, padding: int, copied: int
) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        kernel = weights(6 if groups == 1 else channels, channels // groups, 3, 3)
        return R.nn.conv2d(x, kernel, strides=2, padding=padding, groups=groups)

    shape = (2, channels, 11, 13)
    blocked, _ = assign_layout(module(shape, build), context())
    image = normal(*shape)
    mod = check(lower_operators, blocked, image, reference=run(module(shape, build), image))
    kernels = structure(eliminate_dead_code(mod, context())[0])
    before_the_result = kernels[: next(i for i, n in enumerate(kernels) if "conv2d" in n)]
    assert sum(name.startswith("transpose") for name in before_the_result) == copied
