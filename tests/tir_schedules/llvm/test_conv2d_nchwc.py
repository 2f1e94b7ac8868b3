"""Blocked convolution: awkward shapes, groups, epilogues, and its machine code."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.tir_schedules.llvm.blocked_images import block, block_kernel, convolve, rand
from tests.tir_schedules.llvm.scheduled_kernel import (
    AVX2,
    AVX512,
    assembly,
    assert_runs,
    compiled,
    hot_loop,
    machine,
)
from tir_schedules.llvm.conv2d_nchwc import RULE, conv2d_nchwc
from tir_schedules.llvm.conv_tile import ConvSizes, ConvTile, choose_conv_tile, fits
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline

Four = tuple[int, int, int, int]
HERE = machine()


def _image_and_kernel(
    image: tuple[int, ...], kernel: tuple[int, ...], ib: int, ob: int
) -> tuple[te.Tensor, te.Tensor]:
    n, c, h, w = image
    o, i, kh, kw = kernel
    x = te.placeholder((n, c // ib, h, w, ib), name="x")
    return x, te.placeholder((o // ob, i // ib, kh, kw, ib, ob), name="w")


@pytest.mark.parametrize(
    ("image", "kernel", "ib", "ob", "strides", "padding", "dilation", "groups"),
    [
        ((1, 8, 7, 7), (8, 8, 3, 3), 8, 8, (1, 1), (1, 1, 1, 1), (1, 1), 1),
        ((2, 16, 7, 7), (24, 16, 1, 1), 8, 8, (1, 1), (0, 0, 0, 0), (1, 1), 1),
        ((1, 3, 11, 13), (16, 3, 7, 7), 3, 8, (2, 2), (3, 3, 3, 3), (1, 1), 1),
        ((1, 16, 9, 5), (40, 16, 3, 3), 8, 8, (2, 1), (0, 1, 2, 0), (1, 1), 1),
        ((1, 8, 13, 13), (16, 8, 3, 3), 8, 8, (1, 1), (2, 2, 2, 2), (2, 2), 1),
        ((1, 16, 7, 7), (8, 16, 1, 1), 8, 8, (2, 2), (0, 0, 0, 0), (1, 1), 1),
        ((1, 8, 1, 1), (8, 8, 1, 1), 8, 8, (1, 1), (0, 0, 0, 0), (1, 1), 1),
        ((1, 6, 5, 17), (14, 6, 1, 5), 3, 7, (1, 1), (0, 2, 0, 2), (1, 1), 1),
        ((1, 2, 4, 4), (2, 2, 2, 2), 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
        ((1, 32, 6, 6), (32, 16, 3, 3), 8, 8, (1, 1), (1, 1, 1, 1), (1, 1), 2),
        ((2, 24, 15, 13), (24, 8, 3, 3), 8, 8, (2, 2), (1, 1, 1, 1), (1, 1), 3),
        ((1, 8, 6, 6), (16, 2, 3, 3), 2, 4, (1, 1), (1, 1, 1, 1), (1, 1), 4),
        ((1, 8, 6, 6), (8, 2, 3, 3), 2, 8, (1, 1), (1, 1, 1, 1), (1, 1), 4),
        ((3, 64, 28, 28), (64, 64, 1, 1), 8, 8, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ],
)
def test_conv2d_equals_numpy(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    ib: int,
    ob: int,
    strides: tuple[int, int],
    padding: Four,
    dilation: tuple[int, int],
    groups: int,
) -> None:
    x, w = _image_and_kernel(image, kernel, ib, ob)
    y = conv2d_nchwc(x, w, HERE, strides=strides, padding=padding, dilation=dilation, groups=groups)
    data, weight = rand(*image), rand(*kernel)
    want = convolve(data, weight, strides, padding, dilation, groups)
    inputs = [block(data, ib), block_kernel(weight, ib, ob)]
    assert_runs(te.create_prim_func([x, w, y]), RULE, inputs, [block(want, ob).astype("float32")])


def test_groups_add_the_border_of_their_own_channels() -> None:
    """A border of one group's image lies in the cache, one of the whole image is read far away."""
    x, w = _image_and_kernel((1, 48, 56, 56), (48, 8, 3, 3), 8, 8)
    y = conv2d_nchwc(x, w, machine(AVX2), strides=(2, 2), padding=(1, 1, 1, 1), groups=6)
    sch = RULE.apply(te.create_prim_func([x, w, y]), machine(AVX2))
    tasks = {
        str(sch.get(sch.get_loops(name)[0]).loop_var.name)
        for name in ("pad_border", "conv2d_tiles_update")
    }
    copied = [int(sch.get(loop).extent) for loop in sch.get_loops("pad_border")]
    assert len(tasks) == 1 and copied[0] == 6
    assert np.prod(copied[1:]) == 57 * 57 * 8


def test_group_block_wider_than_the_kernel_block() -> None:
    """Data keeps blocks of 8 where groups of 4 channels need kernel blocks of 4."""
    image, kernel = (1, 16, 5, 5), (16, 4, 3, 3)
    x = te.placeholder((1, 2, 5, 5, 8), name="x")
    _, w = _image_and_kernel(image, kernel, 4, 8)
    y = conv2d_nchwc(x, w, HERE, padding=(1, 1, 1, 1), groups=4)
    data, weight = rand(*image), rand(*kernel)
    want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 4), 8).astype("float32")
    inputs = [block(data, 8), block_kernel(weight, 4, 8)]
    assert_runs(te.create_prim_func([x, w, y]), RULE, inputs, [want])


def _residual(
    image: tuple[int, ...], kernel: tuple[int, ...], pad: int, model: Machine
) -> tuple[PrimFunc, list[np.ndarray], np.ndarray]:
    """Return relu(conv(x) + bias + other), its inputs, and its value."""
    x, w = _image_and_kernel(image, kernel, 8, 8)
    blocks = kernel[0] // 8
    bias = te.placeholder((1, blocks, 1, 1, 8), name="bias")
    y = topi.add(conv2d_nchwc(x, w, model, padding=(pad,) * 4), bias)
    other = te.placeholder(y.shape, name="other")
    out = topi.nn.relu(topi.add(y, other))
    data, weight, b = rand(*image), rand(*kernel), rand(1, blocks, 1, 1, 8)
    want = block(convolve(data, weight, (1, 1), (pad,) * 4, (1, 1), 1), 8)
    side = rand(*want.shape)
    func = te.create_prim_func([x, w, bias, other, out])
    value = np.maximum(want + b + side, 0).astype("float32")
    return func, [block(data, 8), block_kernel(weight, 8, 8), b, side], value


@pytest.mark.parametrize("pad", [0, 1])
def test_bias_residual_and_relu_join_the_tile(pad: int) -> None:
    size = 7 + 2 * (1 - pad)
    func, inputs, want = _residual((1, 16, size, size), (16, 16, 3, 3), pad, machine(AVX2))
    assert_runs(func, RULE, inputs, [want])
    tasks = RULE.apply(func, machine(AVX2)).mod["main"].script()
    assert tasks.count('T.sblock("conv2d_tiles') == 2, "initial value and update only"
    assert tasks.count("sblock_alloc_buffer") == 1 + (pad > 0), "the tile and the padded image"


def test_two_outputs() -> None:
    x, w = _image_and_kernel((1, 8, 9, 9), (16, 8, 3, 3), 8, 8)
    y = conv2d_nchwc(x, w, HERE, padding=(1, 1, 1, 1))
    first = topi.nn.relu(y)
    second = te.compute(y.shape, lambda *i: y(*i) * tirx.sigmoid(y(*i)), name="silu")
    data, weight = rand(1, 8, 9, 9), rand(16, 8, 3, 3)
    want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), 8)
    expected = [np.maximum(want, 0), want / (1 + np.exp(-want))]
    assert_runs(
        te.create_prim_func([x, w, first, second]),
        RULE,
        [block(data, 8), block_kernel(weight, 8, 8)],
        [array.astype("float32") for array in expected],
    )


@pytest.mark.parametrize("kernel", [1, 3])
def test_prologue_runs_once_per_element(kernel: int) -> None:
    x, w = _image_and_kernel((1, 16, 6, 6), (16, 16, kernel, kernel), 8, 8)
    pad = kernel // 2
    y = conv2d_nchwc(topi.nn.relu(x), w, HERE, padding=(pad,) * 4)
    data, weight = rand(1, 16, 6, 6), rand(16, 16, kernel, kernel)
    want = convolve(np.maximum(data, 0), weight, (1, 1), (pad,) * 4, (1, 1), 1)
    func = te.create_prim_func([x, w, y])
    inputs = [block(data, 8), block_kernel(weight, 8, 8)]
    assert_runs(func, RULE, inputs, [block(want, 8).astype("float32")])


def test_symbolic_batch() -> None:
    n = tirx.Var("n", "int64")
    x = te.placeholder((n, 2, 5, 5, 8), name="x")
    w = te.placeholder((2, 2, 3, 3, 8, 8), name="w")
    y = conv2d_nchwc(x, w, HERE, padding=(1, 1, 1, 1))
    data, weight = rand(3, 16, 5, 5), rand(16, 16, 3, 3)
    want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), 8)
    inputs = [block(data, 8), block_kernel(weight, 8, 8)]
    assert_runs(te.create_prim_func([x, w, y]), RULE, inputs, [want.astype("float32")])


@pytest.mark.parametrize("height", [2, 3, 4, 6])
def test_symbolic_width(height: int) -> None:
    """TVM must see that the tiles cover the pixels, which are a multiple of the width."""
    width = tirx.Var("width", "int64")
    x = te.placeholder((1, 2, height, width, 8), name="x")
    w = te.placeholder((2, 2, 1, 1, 8, 8), name="w")
    func = te.create_prim_func([x, w, conv2d_nchwc(x, w, HERE)], index_dtype_override="int64")
    data, weight = rand(1, 16, height, 5), rand(16, 16, 1, 1)
    want = block(convolve(data, weight, (1, 1), (0, 0, 0, 0), (1, 1), 1), 8)
    inputs = [block(data, 8), block_kernel(weight, 8, 8)]
    assert_runs(func, RULE, inputs, [want.astype("float32")])


def test_symbolic_pixels_are_located_once_a_tile() -> None:
    """Dividing by the width in each of the unrolled steps takes the code generator seconds."""
    width = tirx.Var("width", "int64")
    x = te.placeholder((1, 2, 6, width, 8), name="x")
    w = te.placeholder((2, 2, 1, 1, 8, 8), name="w")
    func = te.create_prim_func([x, w, conv2d_nchwc(x, w, HERE)], index_dtype_override="int64")
    script = RULE.apply(func, machine()).mod["main"].script()
    before, update = script.split("conv2d_tiles_update")
    steps = update.split("T.sblock(")[0]
    assert "T.truncmod(" in before
    assert "T.truncmod(" not in steps and "T.min(" not in steps


def test_float64_works() -> None:
    x = te.placeholder((1, 2, 5, 5, 4), name="x", dtype="float64")
    w = te.placeholder((2, 2, 3, 3, 4, 4), name="w", dtype="float64")
    y = conv2d_nchwc(x, w, HERE)
    data, weight = rand(1, 8, 5, 5), rand(8, 8, 3, 3)
    want = block(convolve(data, weight, (1, 1), (0, 0, 0, 0), (1, 1), 1), 4)
    inputs = [a.astype("float64") for a in (block(data, 4), block_kernel(weight, 4, 4))]
    assert_runs(te.create_prim_func([x, w, y]), RULE, inputs, [want], tolerance=1e-12)


@pytest.mark.parametrize(("size", "kernel"), [(7, 1), (14, 3), (56, 1)])
def test_hot_loop_is_packed_fma_without_spills(size: int, kernel: int) -> None:
    func, _, _ = _residual(
        (1, 64, size, size), (64, 64, kernel, kernel), kernel // 2, machine(AVX2)
    )
    loop = hot_loop(assembly(func, RULE), "vfmadd")
    packed = [line for line in loop if re.match(r"vfmadd\w+ps\s", line)]
    assert len(packed) >= 4 * 8, "four channels over at least 8 accumulators"
    assert not [line for line in loop if re.match(r"vfmadd\w+ss\s", line)]
    assert not [line for line in loop if re.search(r"vmov\w+\s+%ymm\d+, .*\(%rsp\)", line)]
    assert len({line.split()[-1] for line in packed}) <= 14, "accumulators within the budget"


@pytest.mark.parametrize("pixels", [1, 7, 49, 196, 784, 3136, 12544, 13 * 13, None])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 7, 8, 256])
def test_tile_covers_the_output_and_fits_registers(pixels: int | None, blocks: int) -> None:
    model = machine(AVX2)
    tile = choose_conv_tile(_sizes(blocks, pixels, 64), model)
    assert blocks % tile.blocks == 0
    assert fits(tile.blocks, tile.pixels, model.vector_registers)
    if pixels is not None:
        unit = tile.pixels * tile.task_tiles
        padded = -(-pixels // unit) * unit
        assert padded - pixels <= max(0.1 * pixels, 2 * tile.pixels)


def _sizes(blocks: int, pixels: int | None, depth: int, images: int = 1) -> ConvSizes:
    return ConvSizes(blocks, 8, pixels, depth, 4 * depth * (pixels or 0), images)


def _large_l2(cores: int = 2) -> Machine:
    return dataclasses.replace(machine(AVX2), l2_bytes=2 << 20, cores=cores)


def _tasks(sizes: ConvSizes, tile: ConvTile) -> int:
    assert sizes.pixels is not None
    panels = sizes.blocks // tile.blocks
    return sizes.images * panels * -(-sizes.pixels // (tile.pixels * tile.task_tiles))


def test_weights_that_no_cache_keeps_are_read_once() -> None:
    """1024 -> 2048 channels at 7x7 have 8 MB of weights: each part of the pixels reads them all."""
    sizes = _sizes(256, 49, 1024)
    tile = choose_conv_tile(sizes, _large_l2())
    assert tile.task_tiles * tile.pixels >= 49


def test_an_image_that_no_cache_keeps_is_cut_into_parts() -> None:
    """64 -> 256 channels at 112x112: each panel would read all 3 MB of input again."""
    sizes = _sizes(32, 112 * 112, 64)
    tile = choose_conv_tile(sizes, _large_l2())
    assert 4 * 64 * tile.task_tiles * tile.pixels < 3 << 19


def test_a_large_image_of_many_channels_is_cut_into_many_parts() -> None:
    """1024 -> 256 channels at 128x128: beside a part of the input all weights stay near."""
    sizes = _sizes(32, 128 * 128, 1024)
    tile = choose_conv_tile(sizes, _large_l2())
    part = 4 * 1024 * tile.task_tiles * tile.pixels
    assert part + sizes.weight_bytes <= 3 << 19


# ResNet-50's layers: output channels, rows (and columns) of the result, products a pixel.
RESNET50 = [(64, 112, 147)] + [
    (channels, size, depth)
    for stage, size in enumerate((56, 28, 14, 7))
    for channels, depth in (
        (64 << stage, 256 << stage),
        (64 << stage, 576 << stage),
        (256 << stage, 64 << stage),
    )
]


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_cores_share_the_work_evenly(target: Target, cores: int) -> None:
    """Of each layer, the share of the cores' time that has work (all tasks are alike)."""
    model = dataclasses.replace(machine(target), cores=cores, l2_bytes=1 << 20)
    for channels, size, depth in RESNET50:
        blocks = channels // model.lanes()
        sizes = ConvSizes(blocks, model.lanes(), size * size, depth, 4 * depth * size * size)
        tasks = _tasks(sizes, choose_conv_tile(sizes, model))
        assert tasks / cores / -(-tasks // cores) >= 0.9, (channels, size, depth)


def test_other_functions_are_declined() -> None:
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Decline, match="0 blocks tagged"):
        RULE.apply(te.create_prim_func([x, topi.nn.relu(x)]), machine(AVX2))


def test_channels_must_match() -> None:
    x, w = _image_and_kernel((1, 16, 5, 5), (8, 8, 1, 1), 8, 8)
    with pytest.raises(ValueError, match="do not match"):
        conv2d_nchwc(x, w, HERE)


@pytest.mark.parametrize(
    ("lanes", "config"),
    [
        (4, {"mcpu": "nehalem", "mtriple": "x86_64-linux-gnu"}),
        (16, {"mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"}),
        (4, {"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}),
    ],
)
def test_builds_for_other_processors(lanes: int, config: dict[str, str]) -> None:
    x, w = _image_and_kernel((1, 32, 9, 9), (32, 32, 3, 3), lanes, lanes)
    func = te.create_prim_func([x, w, conv2d_nchwc(x, w, HERE, padding=(1, 1, 1, 1))])
    assert compiled(func, RULE, Target({"kind": "llvm", "num-cores": 4, **config}))
