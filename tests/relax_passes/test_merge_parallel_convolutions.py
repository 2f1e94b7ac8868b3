"""Convolutions of one tensor become one, where cutting it apart and larger windows cost less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

import relaxc
from relax_passes.merge_parallel_convolutions import merge_parallel_convolutions
from tests.relax_passes.pass_checks import check, context, module, normal, operators, run, weights

R = relax.op
Build = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def conv(
    bb: relax.BlockBuilder,
    x: relax.Expr,
    channels: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    bias: bool = True,
    activation: Callable[[relax.Expr], relax.Expr] | None = R.nn.relu,
) -> relax.Expr:
    """Return an activated convolution that keeps height and width at stride 1."""
    depth = int(x.ty.shape.values[1])
    weight = weights(channels, depth, kernel, kernel, seed=channels + kernel)
    y = bb.emit(R.nn.conv2d(x, weight, strides=stride, padding=kernel // 2))
    if bias:
        y = bb.emit(R.add(y, weights(1, channels, 1, 1, seed=channels)))
    return y if activation is None else bb.emit(activation(y))


def inception(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Three branches, each with a 1x1 convolution of the input in front, and a pooled one."""
    direct = conv(bb, x, 16)
    middle = conv(bb, conv(bb, x, 48), 32, kernel=3)
    wide = conv(bb, conv(bb, x, 32, bias=False), 16, kernel=5)
    pooled = conv(bb, bb.emit(R.nn.max_pool2d(x, 3, 1, 1)), 16)
    return R.concat([direct, middle, wide, pooled], 1)


@pytest.mark.parametrize(("images", "convolutions"), [(1, 5), (2, 4)])
def test_the_heads_of_branches_become_one(images: int, convolutions: int) -> None:
    """Of one image, the head that is a branch of its own is written into the concatenation."""
    shape = (images, 16, 9, 9)
    changed = check(merge_parallel_convolutions, module(shape, inception), normal(*shape))
    assert operators(changed)["nn.conv2d"] == convolutions
    assert operators(changed)["strided_slice"] == 7 - convolutions


def test_slices_are_read_in_place() -> None:
    """No kernel cuts the merged convolution apart: convolutions and concatenation read it."""
    mod = module((2, 16, 9, 9), inception)
    x = normal(2, 16, 9, 9)
    model = relaxc.compile(mod, threads=1)
    wanted = run(mod, x)
    np.testing.assert_allclose(np.asarray(model(x)), wanted, atol=1e-4 * np.abs(wanted).max())
    names = [k["name"] for k in model.report.kernels for _ in range(k["calls"])]
    assert len([n for n in names if n.startswith("conv2d")]) == 4
    assert not any(n.startswith("strided_slice") and "concat" not in n for n in names)


def fire(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """SqueezeNet's expansion: 1x1 and 3x3 side by side."""
    return R.concat([conv(bb, x, 16), conv(bb, x, 16, kernel=3)], 1)


def test_a_concatenation_of_all_is_the_merged_convolution() -> None:
    mod = module((1, 8, 5, 5), fire)
    changed = check(merge_parallel_convolutions, mod, normal(1, 8, 5, 5))
    assert operators(changed) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}


def test_a_window_is_not_enlarged_where_that_is_too_much_work() -> None:
    ctx = context()
    mod = module((1, 64, 28, 28), fire)
    check(merge_parallel_convolutions, mod, fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == (
        "slices move 0 KiB and larger windows add 12845 kFLOP, more than the 456 KiB saved"
    )


def test_equal_windows_merge_where_all_do_not_pay() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        parts = [conv(bb, x, 64), conv(bb, x, 16, kernel=3), conv(bb, x, 24, kernel=3)]
        return R.concat(parts, 1)

    changed = check(
        merge_parallel_convolutions, module((1, 64, 28, 28), build), normal(1, 64, 28, 28)
    )
    assert operators(changed)["nn.conv2d"] == 2


def test_the_options_set_the_exchange() -> None:
    mod = module((1, 64, 28, 28), fire)
    eager = merge_parallel_convolutions.with_options(flops_per_byte=1000)
    assert operators(check(eager, mod, normal(1, 64, 28, 28)))["nn.conv2d"] == 1
    costly = merge_parallel_convolutions.with_options(launch_kib=4096)
    assert operators(check(costly, mod, normal(1, 64, 28, 28)))["nn.conv2d"] == 1


def pooled_branches(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Pooling reads each branch: a slice would be a copy."""
    return R.concat([bb.emit(R.nn.max_pool2d(conv(bb, x, c), 3, 1, 1)) for c in (16, 24)], 1)


def different_strides(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """No geometry in common."""
    return R.add(conv(bb, x, 16, stride=2), conv(bb, bb.emit(R.nn.relu(x)), 16, stride=2))


def different_activations(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """The epilogues differ."""
    return R.concat([conv(bb, x, 16), conv(bb, x, 16, activation=R.tanh)], 1)


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (pooled_branches, (1, 8, 56, 56), "slices move"),
        (different_activations, (1, 8, 9, 9), "different activations follow them"),
        (different_strides, (1, 8, 9, 9), ""),
        (fire, (tvm.tirx.Var("n", "int64"), 8, 5, 5), "their sizes are symbolic"),
    ],
)
def test_what_is_not_merged(build: Build, shape: tuple[object, ...], reason: str) -> None:
    ctx = context()
    check(merge_parallel_convolutions, module(shape, build), fires=False, ctx=ctx)
    reasons = [r for _, _, r in ctx.log.declined]
    assert all(r.startswith(reason) for r in reasons) and bool(reasons) == bool(reason)


def two_windows(sizes: tuple[int, int], pads: tuple[list[int], list[int]]) -> Build:
    """Return what concatenates two convolutions with these windows and borders."""

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        parts = [
            bb.emit(R.nn.conv2d(x, weights(16, 8, size, size, seed=size), padding=pad))
            for size, pad in zip(sizes, pads, strict=True)
        ]
        return R.concat(parts, 1)

    return build


@pytest.mark.parametrize("pads", [([1] * 4, [2] * 4), ([0, 0, 2, 2], [2] * 4)])
def test_a_window_is_enlarged_on_the_sides_where_it_is_smaller(
    pads: tuple[list[int], list[int]],
) -> None:
    mod = module((1, 8, 5, 5), two_windows((1, 3), pads))
    changed = check(merge_parallel_convolutions, mod, normal(1, 8, 5, 5))
    assert operators(changed) == {"nn.conv2d": 1}


def test_windows_over_other_pixels_do_not_merge() -> None:
    ctx = context()
    mod = module((1, 8, 5, 5), two_windows((3, 5), ([2, 2, 0, 0], [0, 0, 4, 4])))
    check(merge_parallel_convolutions, mod, fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == "their windows cover different pixels"
