"""Channels that blocks do not divide: the last is filled up, and nothing reads what fills it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.analysis.definitions import operator_name
from relax_passes.assign_layout import assign_layout
from relax_passes.layout.blocked import pack_constant, pack_kernel
from relax_passes.layout.lanes import choose_block, choose_even_block
from relax_passes.lower_operators import lower_operators
from relax_passes.pass_base import PassContext
from tests.relax_passes.pass_checks import check, context, module, normal, run, weights
from tests.relax_passes.test_assign_layout import Emit, Middle

R = relax.op
SHAPE = (2, 3, 9, 9)
CHANNELS = 20  # three blocks of 8, four lanes idle


def between(middle: Middle, channels: int = CHANNELS) -> tvm.IRModule:
    """Return conv -> `middle` -> conv; the values between have 20 channels."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = bb.emit(R.nn.conv2d(x, weights(CHANNELS, 3, 3, 3), padding=1))
        return R.nn.conv2d(middle(bb.emit, first), weights(13, channels, 1, 1, seed=1))

    return module(SHAPE, build)


def transforms(mod: tvm.IRModule, ctx: PassContext | None = None) -> int:
    """Check the pass on `mod`; return how many transforms it left."""
    ctx = ctx or context()
    assign_layout(mod, ctx)
    check(assign_layout, mod, normal(*SHAPE), finish=lower_operators, ctx=context())
    return int(ctx.log.metrics["layout_transforms"])


def concat(e: Emit, y: relax.Expr) -> relax.Expr:
    return e(R.concat([e(R.nn.conv2d(y, weights(16, CHANNELS, 1, 1))), e(R.nn.relu(y))], axis=1))


def depthwise(e: Emit, y: relax.Expr) -> relax.Expr:
    return e(R.nn.conv2d(y, weights(CHANNELS, 1, 3, 3), groups=CHANNELS, padding=1))


def gate(e: Emit, y: relax.Expr) -> relax.Expr:
    return e(R.multiply(y, e(R.sigmoid(e(R.mean(y, [2, 3], keepdims=True))))))


def in_groups(e: Emit, y: relax.Expr) -> relax.Expr:
    return e(R.nn.conv2d(y, weights(CHANNELS, 4, 3, 3), groups=CHANNELS // 4, padding=1))


KEPT: dict[str, tuple[Middle, int]] = {
    "nothing": (lambda e, y: y, 20),
    "exp": (lambda e, y: e(R.exp(y)), 20),
    "bias": (lambda e, y: e(R.add(y, weights(1, 20, 1, 1))), 20),
    "divided by a constant": (lambda e, y: e(R.divide(y, weights(20, 1, 1))), 20),
    "depthwise": (depthwise, 20),
    "groups of 4 channels": (in_groups, 20),
    "residual": (lambda e, y: e(R.add(y, depthwise(e, y))), 20),
    "gate": (gate, 20),
    "max pool": (lambda e, y: e(R.nn.max_pool2d(y, (3, 3), strides=2, padding=1)), 20),
    "last of a concatenation": (concat, 36),
    "slice to the end": (lambda e, y: e(R.strided_slice(y, [1], [8], [20])), 12),
}


@pytest.mark.parametrize("kind", KEPT)
def test_filled_up_blocks_stay(kind: str) -> None:
    middle, channels = KEPT[kind]
    assert transforms(between(middle, channels)) == 2


EVEN: dict[str, tuple[Middle, int, str]] = {
    "log": (lambda e, y: e(R.log(y)), 20, "log"),
    "zero by zero": (lambda e, y: e(R.divide(y, e(R.exp(depthwise(e, y))))), 20, "divide"),
    "power": (lambda e, y: e(R.power(e(R.exp(y)), relax.const(np.float32(-2)))), 20, "power"),
    "first of all": (lambda e, y: e(R.concat([y, e(R.nn.relu(y))], axis=1)), 40, "concat"),
    "slice": (lambda e, y: e(R.strided_slice(y, [1], [4], [20])), 16, "strided_slice"),
}


@pytest.mark.parametrize("kind", EVEN)
def test_what_could_meet_the_filling_takes_even_blocks_or_none(kind: str) -> None:
    middle, channels, name = EVEN[kind]
    mod = between(middle, channels)
    changed = check(assign_layout, mod, normal(*SHAPE), finish=lower_operators)
    found = []
    for block in changed["main"].body.blocks:
        found += [b.value for b in block.bindings if operator_name(b.value) == name]
    # What cuts blocks back to NCHW, if anything, is a slice too.
    shapes = [[int(d) for d in value.ty.shape.values] for value in found]
    assert channels in [shape[1] * (shape[4] if len(shape) == 5 else 1) for shape in shapes]


def test_strict_precision_fills_up_nothing() -> None:
    """An infinite channel would meet the zeros that fill up the last block, and give NaN."""
    ctx = context()
    ctx.precision = "strict"
    mod = between(lambda e, y: e(R.clip(y, 0, 6)))
    changed, _ = assign_layout(mod, ctx)
    image = normal(*SHAPE)
    image[0, 0, 4, 4] = np.inf
    want = run(mod, image)
    assert np.isfinite(want).any()
    np.testing.assert_allclose(
        run(lower_operators(changed, ctx)[0], image), want, rtol=1e-4, atol=1e-4
    )


def test_weights_that_are_arguments_are_filled_up_in_each_run() -> None:
    mod = module((20, 20, 3, 3), lambda bb, x: R.nn.conv2d(x, x, padding=1))
    check(assign_layout, mod, normal(20, 20, 3, 3), finish=lower_operators)


@pytest.mark.parametrize(
    ("channels", "lanes", "block"),
    [
        *[(1000, 16, 16), (440, 16, 16), (24, 16, 12), (40, 16, 16), (17, 16, 12), (112, 16, 16)],
        *[(10, 16, 10), (1000, 8, 8), (20, 8, 8), (12, 8, 6), (5, 4, 3)],
    ],
)
def test_registers_and_bytes_decide(channels: int, lanes: int, block: int) -> None:
    assert choose_block(channels, lanes) == block


@pytest.mark.parametrize(
    ("channels", "lanes", "block"),
    [
        *[(64, 8, 8), (3, 8, 3), (1, 8, 1), (12, 8, 6), (20, 8, 4), (9, 8, 3), (17, 8, 1)],
        *[(64, 16, 16), (24, 16, 12), (60, 16, 12), (40, 16, 8), (56, 16, 14), (17, 16, 1)],
    ],
)
def test_even_blocks_waste_least(channels: int, lanes: int, block: int) -> None:
    assert choose_even_block(channels, lanes) == block


def test_even_blocks_divide_the_channels() -> None:
    for channels in range(1, 300):
        assert channels % choose_even_block(channels, 16) == 0


def test_what_fills_up_is_zero_or_what_was_asked_for() -> None:
    packed = pack_kernel(np.ones((13, 5, 1, 1)), 4, 8)
    assert packed.shape == (2, 2, 1, 1, 4, 8)
    assert packed.sum() == 13 * 5
    assert packed[1, :, 0, 0, :, 5:].sum() == packed[:, 1, 0, 0, 1:].sum() == 0
    assert pack_constant(np.full((5, 1, 1), 3), 4, fill=1)[0, 1, 0, 0].tolist() == [3, 1, 1, 1]
