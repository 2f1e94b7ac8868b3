"""Convolutions over one axis that become convolutions over images of one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import relaxc
from relax_passes.lift_convolution_1d import lift_convolution_1d
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op
Emit = Callable[[relax.Expr], relax.Expr]
Middle = Callable[[Emit, relax.Expr], relax.Expr]
SHAPE = (2, 3, 20)


def between(middle: Middle) -> tvm.IRModule:
    """Return conv1d -> `middle` -> conv1d."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = bb.emit(R.nn.conv1d(x, weights(16, 3, 3), padding=1))
        return R.nn.conv1d(middle(bb.emit, first), weights(8, 16, 1, seed=1))

    return module(SHAPE, build)


KEPT: dict[str, Middle] = {
    "relu": lambda e, y: e(R.nn.relu(y)),
    "clip": lambda e, y: e(R.clip(y, 0, 6)),
    "bias": lambda e, y: e(R.add(y, weights(1, 16, 1))),
    "bias of rank 2": lambda e, y: e(R.add(weights(16, 1), y)),
    "row": lambda e, y: e(R.add(y, weights(20))),
    "scalar": lambda e, y: e(R.multiply(y, relax.const(np.float32(3)))),
    "residual": lambda e, y: e(R.add(y, e(R.nn.conv1d(y, weights(16, 16, 1))))),
    "joined": lambda e, y: e(
        R.concat([e(R.nn.conv1d(y, weights(8, 16, 1))), e(R.nn.conv1d(y, weights(8, 16, 1)))], 1)
    ),
    "max pool": lambda e, y: e(R.nn.max_pool1d(y, 3, strides=2, padding=1)),
    "average pool": lambda e, y: e(R.nn.avg_pool1d(y, 2, strides=2, count_include_pad=True)),
    "depthwise": lambda e, y: e(R.nn.conv1d(y, weights(16, 1, 5), groups=16, padding=2)),
    "strided, dilated": lambda e, y: e(
        R.nn.conv1d(y, weights(16, 8, 3), groups=2, strides=2, dilation=2, padding=(1, 4))
    ),
    "transposed": lambda e, y: e(
        R.nn.conv1d_transpose(y, weights(16, 16, 4), strides=2, padding=1, output_padding=1)
    ),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_lies_between_works_on_the_image(kind: str) -> None:
    changed = check(lift_convolution_1d, between(KEPT[kind]), normal(*SHAPE))
    counts = operators(changed)
    assert not any("1d" in name for name in counts), counts
    # One view of the input and one of the result: none between.
    assert counts["squeeze"] == 1, counts


def test_transpose_of_the_result_reads_the_image() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv1d(x, weights(16, 3, 3)))
        return R.permute_dims(y, [0, 2, 1])

    changed = check(lift_convolution_1d, module(SHAPE, build), normal(*SHAPE))
    assert operators(changed) == {"expand_dims": 1, "nn.conv2d": 1, "permute_dims": 1, "squeeze": 1}


def test_result_that_others_read_as_it_was() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv1d(x, weights(16, 3, 3)))
        return R.nn.softmax(bb.emit(R.add(bb.emit(R.sum(y, [1], keepdims=True)), y)), axis=1)

    check(lift_convolution_1d, module(SHAPE, build), normal(*SHAPE))


def test_other_layouts_and_convolutions_are_left_alone() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.nn.conv1d(x, weights(3, 4, 20), data_layout="NWC", kernel_layout="WIO")

    check(lift_convolution_1d, module((2, 5, 4), build), fires=False)


def test_symbolic_length_runs_at_many_lengths_in_blocks() -> None:
    length = tirx.Var("length", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv1d(x, weights(16, 8, 3), padding=1))
        return R.nn.conv1d(bb.emit(R.nn.relu(y)), weights(8, 16, 3, seed=1), strides=2, padding=1)

    mod = module((1, 8, length), build)
    plain = relaxc.compile(
        mod, progress=False, passes=default_pipeline().without("lift_convolution_1d")
    )
    lifted = relaxc.compile(mod, progress=False)
    assert (plain.report.layout_transforms, lifted.report.layout_transforms) == (None, 2)
    for size in (1, 2, 7, 64):
        x = normal(1, 8, size)
        np.testing.assert_allclose(lifted(x), plain(x), rtol=1e-4, atol=1e-4)


def test_a_gpu_gets_images_of_one_row_too() -> None:
    ctx = context()
    ctx.machine = type(ctx.machine).from_target(
        tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    )
    mod = between(KEPT["relu"])
    assert lift_convolution_1d(mod, ctx)[1]
