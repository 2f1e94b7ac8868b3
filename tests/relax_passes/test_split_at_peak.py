"""A convolution and the pool of its result, computed by parts where they hold the most memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.pipeline import default_pipeline
from relax_passes.split_at_peak import split_at_peak
from tests.relax_passes.lowered_modules import llvm_context
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op
SMALL = split_at_peak.with_options(least_kib=1)
IMAGE = (1, 3, 20, 20)


def stem(
    channels: int = 16, between: Callable[[relax.Expr], relax.Expr] = R.nn.relu, **conv: object
) -> Callable[[relax.BlockBuilder, relax.Var], relax.Expr]:
    """Return what builds a convolution, a bias, a map, a pool, and a product of its result."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        filtered = bb.emit(R.nn.conv2d(x, weights(channels, 3, 3, 3), padding=1, **conv))
        biased = bb.emit(R.add(filtered, weights(1, channels, 1, 1, seed=1)))
        pooled = bb.emit(R.nn.max_pool2d(bb.emit(between(biased)), (2, 2), (2, 2)))
        return R.nn.conv2d(pooled, weights(2, channels, 1, 1, seed=2))

    return build


def test_parts_make_the_same_result_and_the_peak_falls() -> None:
    changed = check(SMALL, module(IMAGE, stem()), normal(*IMAGE))
    assert operators(changed) == {
        **{"nn.conv2d": 5, "add": 4, "nn.relu": 4, "nn.max_pool2d": 4, "concat": 1},
    }


def test_the_arena_falls_and_no_part_is_copied() -> None:
    """The image of 64 x 64 pixels in blocks of channels, through the whole pipeline."""
    sizes = []
    for pipeline in (default_pipeline(), default_pipeline().without("split_at_peak")):
        ctx = llvm_context()
        some = pipeline.with_options("split_at_peak", least_kib=8) if not sizes else pipeline
        some.run(module((1, 3, 64, 64), stem(32)), ctx)
        sizes.append(ctx.log.metrics["arena_bytes"])
        assert ctx.log.metrics["part_copies"] == ctx.log.metrics["copies"]["left"] == 0
        assert sizes[-1] == ctx.log.metrics["lower_bound_bytes"]
    whole, pooled = 32 * 64 * 64 * 4, 32 * 32 * 32 * 4
    assert sizes == [whole // 4 + pooled, whole + pooled]


@pytest.mark.parametrize(("most", "convolutions"), [(2, 3), (3, 3), (4, 5), (1, None)])
def test_the_parts_are_as_many_as_divide_the_channels(most: int, convolutions: int | None) -> None:
    chosen = SMALL.with_options(most_parts=most)
    changed = check(chosen, module(IMAGE, stem()), fires=convolutions is not None)
    assert operators(changed)["nn.conv2d"] == (convolutions or 2)


@pytest.mark.parametrize(
    ("option", "fires", "refuses"),
    [("least_kib", 10, 40), ("least_percent", 50, 70), ("read_percent", 19, 18)],
)
def test_each_option_is_a_limit(option: str, fires: int, refuses: int) -> None:
    """Whole: 25.6 + 6.4 KB alive; in four parts 12.8. The image takes 18.75 percent of 25.6."""
    for value, wanted in ((fires, True), (refuses, False)):
        chosen = SMALL.with_options(**{option: value})
        ctx = context()
        check(chosen, module(IMAGE, stem()), fires=wanted, ctx=ctx)
        assert bool(ctx.log.declined) != wanted


def one_block(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Build the stem in blocks of 16 channels: it has one of them."""
    layouts = {"kernel_layout": "OIHW16o", "out_layout": "NCHW16c"}
    wide = bb.emit(R.nn.conv2d(x, weights(1, 3, 3, 3, 16), **layouts))
    pooled = bb.emit(R.nn.max_pool2d(wide, (2, 2), (2, 2), layout="NCHW16c"))
    return R.nn.relu(pooled)


def grouped(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    filtered = bb.emit(R.nn.conv2d(x, weights(18, 1, 3, 3), groups=3))
    return R.nn.conv2d(bb.emit(R.nn.max_pool2d(filtered, (2, 2))), weights(2, 18, 1, 1))


def returned(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    wide = bb.emit(R.nn.conv2d(x, weights(16, 3, 3, 3)))
    return R.nn.max_pool2d(wide, (2, 2), (2, 2))


def later_peak(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Build another convolution beside whose operand as many bytes are alive."""
    pooled = stem()(bb, x).args[0]
    wide = bb.emit(R.nn.conv2d(pooled, weights(64, 16, 1, 1)))
    return R.nn.conv2d(bb.emit(R.nn.relu(wide)), weights(2, 64, 1, 1))


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (stem(), (2, 3, 20, 20), "channels of several images are no run of bytes"),
        (grouped, IMAGE, "its weights are no constant of one group"),
        (returned, IMAGE, "its result leaves the graph"),
        (stem(13), IMAGE, "13 blocks of channels have no divisor from 2 to 4"),
        (one_block, IMAGE, "1 blocks of channels have no divisor from 2 to 4"),
        (later_peak, IMAGE, "the whole function would need hardly less memory"),
        (stem(), (1, 3, tvm.tirx.Var("h", "int64"), 20), "its sizes are symbolic"),
        (stem(between=lambda x: R.nn.softmax(x, 1)), IMAGE, None),
    ],
    ids=[
        "batch",
        "groups",
        "output",
        "prime",
        "one block",
        "another peak",
        "symbolic sizes",
        "channels mixed",
    ],
)
def test_others_stay(build: Callable, shape: tuple, reason: str | None) -> None:
    ctx = context()
    check(SMALL, module(shape, build), fires=False, ctx=ctx)
    assert {found for _, _, found in ctx.log.declined} == ({reason} if reason else set())


def test_a_result_that_something_else_reads_stays_whole() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        wide = bb.emit(R.nn.conv2d(x, weights(16, 3, 3, 3)))
        pooled = bb.emit(R.nn.max_pool2d(wide, (2, 2), (2, 2)))
        return R.add(bb.emit(R.mean(wide)), bb.emit(R.mean(pooled)))

    check(SMALL, module(IMAGE, build), fires=False)


def test_constants_of_fewer_axes_are_cut_along_the_channels() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        biased = bb.emit(
            R.multiply(bb.emit(R.nn.conv2d(x, weights(16, 3, 3, 3))), weights(16, 1, 1))
        )
        shifted = bb.emit(R.add(relax.const(np.float32(0.5)), biased))
        scaled = bb.emit(R.multiply(shifted, weights(18)))
        pooled = bb.emit(R.nn.avg_pool2d(scaled, (2, 2), (2, 2)))
        return R.nn.conv2d(pooled, weights(2, 16, 1, 1))

    changed = check(SMALL, module(IMAGE, build), normal(*IMAGE))
    assert operators(changed)["nn.avg_pool2d"] == 4
