"""Transforms between layouts move each element to its place, whatever fills up the last block."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relax_passes.layout.blocked import pack_constant
from relax_passes.layout.transforms import LayoutTransforms
from tests.relax_passes.pass_checks import module, normal, run


@pytest.mark.parametrize("channels", [20, 24, 26])
@pytest.mark.parametrize(("held", "wanted"), [(8, 4), (4, 8), (8, 6), (16, 8), (8, 16), (6, 4)])
@pytest.mark.parametrize("size", [1, 5])
def test_blocks_of_another_size(channels: int, held: int, wanted: int, size: int) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        transforms = LayoutTransforms(bb)
        return transforms.reblock(transforms.block(x, held), wanted).value

    image = normal(2, channels, size, size)
    got = run(module(image.shape, build), image)
    want = pack_constant(image, wanted)
    full = channels // wanted * wanted
    assert got.shape == want.shape
    np.testing.assert_array_equal(got[:, : full // wanted], want[:, : full // wanted])
    np.testing.assert_array_equal(
        got[:, -1, ..., : channels - full], want[:, -1, ..., : channels - full]
    )


@pytest.mark.parametrize(("channels", "unit"), [(16, 8), (20, 8), (3, 16)])
def test_blocks_of_a_unit_are_nc1hwc0(channels: int, unit: int) -> None:
    """The layout as its own definition has it: channel c of a pixel is at (c // C0, c % C0)."""
    image = normal(2, channels, 3, 5)
    got = run(module(image.shape, lambda bb, x: LayoutTransforms(bb).block(x, unit).value), image)
    want = np.zeros((2, -(-channels // unit), 3, 5, unit), "float32")
    for channel in range(channels):
        want[:, channel // unit, :, :, channel % unit] = image[:, channel]
    assert got.shape == want.shape
    for channel in range(channels):
        at = (slice(None), channel // unit, slice(None), slice(None), channel % unit)
        np.testing.assert_array_equal(got[at], want[at])


@pytest.mark.parametrize("block", [4, 8, 20])
def test_there_and_back(block: int) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        transforms = LayoutTransforms(bb)
        last = transforms.channels_last(transforms.block(x, block))
        return transforms.unblock(transforms.from_channels_last(last, block))

    image = normal(2, 20, 3, 5)
    np.testing.assert_array_equal(run(module(image.shape, build), image), image)


def test_blocks_of_all_channels_are_nhwc_and_cost_nothing() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", module((1, 4, 4, 16), lambda _, v: v)["main"].params[0].ty)
    with bb.function("main", [x]):
        with bb.dataflow():
            transforms = LayoutTransforms(bb)
            out = transforms.channels_last(transforms.from_channels_last(x, 16))
            assert transforms.count == 0
            out = bb.emit_output(out)
        bb.emit_func_output(out)
