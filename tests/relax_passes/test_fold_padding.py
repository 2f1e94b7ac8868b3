"""Zero borders that become a convolution's own padding."""

from __future__ import annotations

import pytest
from tvm import relax

from relax_passes.fold_padding import fold_padding
from tests.relax_passes.pass_checks import check, module, normal, operators, weights

R = relax.op


def test_uneven_border_joins_the_padding_of_the_convolution() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bordered = bb.emit(R.nn.pad(x, [0, 0, 0, 0, 0, 1, 2, 3]))
        return R.nn.conv2d(bordered, weights(8, 4, 3, 3), strides=2, padding=[1, 0, 0, 2])

    changed = check(fold_padding, module((2, 4, 9, 8), build), normal(2, 4, 9, 8))
    assert operators(changed) == {"nn.conv2d": 1}


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    shape = (1, 2, *(7, 6, 5)[:rank])
    convolution = {1: R.nn.conv1d, 3: R.nn.conv3d}[rank]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bordered = bb.emit(R.nn.pad(x, [0, 0, 0, 0, *[1, 2] * rank]))
        return convolution(bordered, weights(3, 2, *[3] * rank))

    changed = check(fold_padding, module(shape, build), normal(*shape))
    assert operators(changed)["nn.pad"] == 0


def test_border_with_another_reader_stays_for_it() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bordered = bb.emit(R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return R.add(bb.emit(R.nn.conv2d(bordered, weights(4, 4, 1, 1))), bordered)

    changed = check(fold_padding, module((1, 4, 5, 5), build), normal(1, 4, 5, 5))
    assert operators(changed) == {"nn.pad": 1, "nn.conv2d": 1, "add": 1}


@pytest.mark.parametrize(
    ("widths", "mode", "value"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], "constant", 0.5),
        ([0, 0, 0, 0, 1, 1, 1, 1], "reflect", 0.0),
        ([0, 0, 0, 1, 1, 1, 1, 1], "constant", 0.0),
    ],
    ids=["another value", "reflection", "more channels"],
)
def test_other_borders_stay(widths: list[int], mode: str, value: float) -> None:
    channels = 4 + widths[3]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bordered = bb.emit(R.nn.pad(x, widths, mode, value))
        return R.nn.conv2d(bordered, weights(4, channels, 3, 3))

    check(fold_padding, module((1, 4, 5, 5), build), fires=False)
