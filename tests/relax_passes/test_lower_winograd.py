"""Which convolutions become Winograd's, and that they stay the same function."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.assign_layout import assign_layout
from relax_passes.lower_operators import lower_operators
from relax_passes.pass_base import PassContext
from tests.relax_passes.pass_checks import context, module, run, weights


def _convolution(
    channels: int = 32, size: int = 28, kernel: int = 3, stride: int = 1, groups: int = 1
) -> tvm.IRModule:
    weight = weights(channels, channels // groups, kernel, kernel)
    pad = kernel // 2
    return module(
        (1, channels, size, size),
        lambda bb, x: relax.op.nn.conv2d(x, weight, strides=stride, padding=pad, groups=groups),
    )


def _lower(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
    return lower_operators(assign_layout(mod, ctx)[0], ctx)[0]


def _kernels(mod: tvm.IRModule) -> list[str]:
    return [str(v.name_hint) for v in mod.get_global_vars() if "conv2d" in str(v.name_hint)]


def test_a_3x3_convolution_of_many_pixels_is_winograd() -> None:
    ctx = context()
    mod = _convolution()
    lowered = _lower(mod, ctx)
    assert _kernels(lowered) == ["conv2d_winograd"]
    assert any("Winograd F(4, 3)" in what for _, what in ctx.log.fired)
    image = np.random.default_rng(1).standard_normal((1, 32, 28, 28)).astype("float32")
    got, want = run(lowered, image), run(mod, image)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    "sizes",
    [
        {"kernel": 1},
        {"kernel": 5},
        {"stride": 2},
        {"groups": 4},
        {"channels": 12},
        {"channels": 512, "size": 2},
    ],
)
def test_others_stay_direct_sums(sizes: dict[str, int]) -> None:
    assert _kernels(_lower(_convolution(**sizes), context())) == ["conv2d"]


@pytest.mark.parametrize("size", [(28, 28), (9, 6)])
def test_an_image_of_any_size_is_winograd(size: tuple[int, int]) -> None:
    weight = weights(32, 32, 3, 3)
    shape = (1, 32, tirx.Var("h", "int64"), tirx.Var("w", "int64"))
    mod = module(shape, lambda bb, x: relax.op.nn.conv2d(x, weight, padding=1))
    lowered = _lower(mod, context())
    assert _kernels(lowered) == ["conv2d_winograd"]
    image = np.random.default_rng(1).standard_normal((1, 32, *size)).astype("float32")
    got, want = run(lowered, image), run(mod, image)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_strict_precision_keeps_the_direct_sum() -> None:
    ctx = context()
    ctx.precision = "strict"
    assert _kernels(_lower(_convolution(), ctx)) == ["conv2d"]
    assert any("Winograd" in reason for _, _, reason in ctx.log.declined)
