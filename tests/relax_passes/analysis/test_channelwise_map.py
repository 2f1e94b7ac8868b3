"""Kernels that compute each channel alone are read off their loop nest, and made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from relax_passes.analysis.channelwise_map import ChannelwiseMap, channelwise_map
from tests.relax_passes.image_resizing import enlarge, repeat
from tests.relax_passes.pass_checks import module, normal, run

R = relax.op
N = tirx.Var("n", "int64")


def found_in(mod: tvm.IRModule) -> list[ChannelwiseMap]:
    """Return the maps that `main` calls."""
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    found = [channelwise_map(binding.value, mod) for binding in bindings]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("axis", [2, 3])
def test_resampling_is_a_linear_map(axis: int) -> None:
    (found,) = found_in(module((2, 3, 4, 5), lambda bb, x: enlarge(bb, x, axis, 9)))
    assert found.is_linear and found.data.name == "x" and len(found.call.args[1].fields) == 1 + 2


def test_repeating_rows_of_a_symbolic_image_is_one() -> None:
    mod = module((1, 3, N, 5), lambda bb, x: repeat(bb, x, 2, 2))
    (found,) = found_in(mod)
    assert found.is_linear


NO_MAPS: dict[str, Callable[[Any], Any]] = {
    "channels reversed": lambda x: lambda n, c, h, w: x(n, 2 - c, h, w),
    "the channel as a number": lambda x: lambda n, c, h, w: x(n, c, h, w) * c.astype("float32"),
    "two channels": lambda x: lambda n, c, h, w: x(n, c, h, w) + x(n, tirx.max(c - 1, 0), h, w),
    "samples reversed": lambda x: lambda n, c, h, w: x(1 - n, c, h, w),
}


@pytest.mark.parametrize("body", NO_MAPS.values(), ids=NO_MAPS)
def test_what_mixes_channels_is_none(body: Callable[[Any], Any]) -> None:
    mod = module(
        (2, 3, 4, 5),
        lambda bb, x: bb.emit_te(lambda data: te.compute(data.shape, body(data)), x),
    )
    assert found_in(mod) == []


def test_a_kernel_that_is_passed_a_number_is_none() -> None:
    """The number of rows to leave out: no tensor has that size."""
    skipped = relax.Var("skipped", relax.ShapeType([N]))
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 8, 5), "float32"))
    with bb.function("main", [x, skipped]):
        with bb.dataflow():
            data = te.placeholder((1, 3, 8, 5), name="data")
            count = tirx.Var("count", "int64")
            crop = te.compute((1, 3, 4, 5), lambda n, c, h, w: data(n, c, h + count, w))
            kernel = bb.add_func(te.create_prim_func([data, count, crop]), "crop")
            out = relax.TensorType((1, 3, 4, 5), "float32")
            value = bb.emit(relax.call_tir(kernel, [x, relax.prim_value(N)], out_ty=out))
            result = bb.emit_output(value)
        bb.emit_func_output(result)
    assert found_in(bb.get()) == []


def test_a_square_is_a_map_but_not_linear() -> None:
    def square(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: data(*i) * data(*i))

    (found,) = found_in(module((2, 3, 4, 5), lambda bb, x: bb.emit_te(square, x)))
    assert not found.is_linear


@pytest.mark.parametrize("block", [2, 6])
def test_in_blocks_the_numbers_are_equal(block: int) -> None:
    """The map is computed of (N, C/x, H, W, x), x = C being NHWC."""

    def both(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        plain = enlarge(bb, x, 3, 8)
        (found,) = found_in_builder(bb, plain)
        blocks = bb.emit(R.reshape(x, (2, 6 // block, block, 4, 5)))
        made = bb.emit(found.of(bb, bb.emit(R.permute_dims(blocks, [0, 1, 3, 4, 2]))))
        back = bb.emit(R.permute_dims(made, [0, 1, 4, 2, 3]))
        return R.subtract(plain, bb.emit(R.reshape(back, (2, 6, 4, 8))))

    difference = run(module((2, 6, 4, 5), both), normal(2, 6, 4, 5))
    np.testing.assert_array_equal(difference, 0)


def found_in_builder(bb: relax.BlockBuilder, var: relax.Var) -> list[ChannelwiseMap]:
    found = channelwise_map(bb.lookup_binding(var), bb.get())
    return [] if found is None else [found]
