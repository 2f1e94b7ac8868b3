"""Blocked depthwise convolution: awkward shapes, epilogues, and its machine code."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.tir_schedules.llvm.blocked_images import block, block_kernel, convolve, rand
from tests.tir_schedules.llvm.scheduled_kernel import (
    AVX2,
    HOST,
    assembly,
    assert_runs,
    compiled,
    hot_loop,
    machine,
)
from tir_schedules.llvm.depthwise_conv2d import RULE, depthwise_conv2d_nchwc
from tir_schedules.llvm.permute_lanes import can_permute

Four = tuple[int, int, int, int]


def _pack(weight: np.ndarray, size: int) -> np.ndarray:
    c, _, kh, kw = weight.shape
    tiles = weight.reshape(c // size, size, kh, kw).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(tiles[:, None, :, :, None, :])


@pytest.mark.parametrize(
    ("image", "kernel", "size", "strides", "padding", "dilation"),
    [
        ((1, 16, 14, 14), (3, 3), 8, (1, 1), (1, 1, 1, 1), (1, 1)),
        ((2, 8, 11, 13), (3, 3), 8, (2, 2), (1, 1, 1, 1), (1, 1)),
        ((1, 8, 7, 7), (5, 5), 8, (1, 1), (2, 2, 2, 2), (1, 1)),
        ((1, 8, 29, 29), (7, 7), 8, (2, 1), (3, 3, 3, 3), (1, 1)),
        ((1, 8, 12, 9), (3, 3), 8, (1, 1), (0, 0, 0, 0), (2, 2)),
        ((1, 6, 9, 23), (3, 2), 3, (2, 2), (0, 1, 1, 0), (1, 1)),
        ((1, 5, 3, 3), (3, 3), 1, (1, 1), (1, 1, 1, 1), (1, 1)),
        ((1, 8, 1, 1), (1, 1), 8, (1, 1), (0, 0, 0, 0), (1, 1)),
        ((1, 8, 112, 112), (3, 3), 8, (1, 1), (0, 0, 1, 1), (1, 1)),
    ],
)
def test_depthwise_equals_numpy(
    image: tuple[int, ...],
    kernel: tuple[int, int],
    size: int,
    strides: tuple[int, int],
    padding: Four,
    dilation: tuple[int, int],
) -> None:
    n, c, h, w = image
    x = te.placeholder((n, c // size, h, w, size), name="x")
    k = te.placeholder((c // size, 1, *kernel, 1, size), name="w")
    y = depthwise_conv2d_nchwc(x, k, strides=strides, padding=padding, dilation=dilation, groups=c)
    data, weight = rand(*image), rand(c, 1, *kernel)
    want = convolve(data, weight, strides, padding, dilation, c)
    func = te.create_prim_func([x, k, y])
    assert_runs(
        func, RULE, [block(data, size), _pack(weight, size)], [block(want, size).astype("float32")]
    )


def _groups(
    target: Target, per_group: int, size: int = 15, stride: int = 1
) -> tuple[PrimFunc, list[np.ndarray], np.ndarray]:
    """Return a convolution of groups within a register, with ReLU, its inputs and its result."""
    lanes = machine(target).lanes("float32")
    channels, padding, strides = 2 * lanes, (1, 1, 1, 1), (stride, stride)
    x = te.placeholder((1, 2, size, size, lanes), name="x")
    k = te.placeholder((2, 1, 3, 3, per_group, lanes), name="w")
    y = depthwise_conv2d_nchwc(x, k, strides=strides, padding=padding, groups=channels // per_group)
    data, weight = rand(1, channels, size, size), rand(channels, per_group, 3, 3)
    want = convolve(data, weight, strides, padding, (1, 1), channels // per_group)
    func = te.create_prim_func([x, k, topi.nn.relu(y)])
    inputs = [block(data, lanes), block_kernel(weight, per_group, lanes)]
    return func, inputs, block(np.maximum(want, 0), lanes).astype("float32")


@pytest.mark.parametrize(("size", "stride"), [(15, 1), (15, 2), (7, 1), (33, 1)])
@pytest.mark.parametrize("share", [2, 4])
def test_groups_within_a_register_equal_numpy(share: int, size: int, stride: int) -> None:
    lanes = machine(HOST).lanes("float32")
    if not can_permute(lanes, machine(HOST)):
        pytest.skip("this processor does not permute the lanes of a register")
    func, inputs, want = _groups(HOST, lanes // share, size, stride)
    assert_runs(func, RULE, inputs, [want])


@pytest.mark.parametrize(("mcpu", "lanes"), [("haswell", 8), ("skylake-avx512", 16)])
def test_taps_share_a_permutation(mcpu: str, lanes: int) -> None:
    """A row of 14 pixels needs 16 permutations a channel, and has 42 multiplications."""
    target = Target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 1})
    assert can_permute(lanes, machine(target))
    func, *_ = _groups(target, lanes // 2, size=14)
    loop = hot_loop(assembly(func, RULE, target), "vfmadd")
    products = sum(line.startswith("vfmadd") for line in loop)
    assert products >= 14 * 3
    assert 0 < sum(bool(re.match("v(perm|shuf)", line)) for line in loop) <= products / 2
    kept = [line for line in loop if re.search(r"vmov\w+\s+%zmm\d+, .*\(%rsp\)", line)]
    assert len(kept) <= 14 + 2, "at most the row of pixels, once for all channels"


def test_bias_clip_and_prologue() -> None:
    x = te.placeholder((1, 2, 9, 9, 8), name="x")
    k = te.placeholder((2, 1, 3, 3, 1, 8), name="w")
    b = te.placeholder((1, 2, 1, 1, 8), name="b")
    y = depthwise_conv2d_nchwc(topi.nn.relu(x), k, padding=(1, 1, 1, 1))
    y = topi.clip(topi.add(y, b), 0.0, 6.0)
    data, weight, bias = rand(1, 16, 9, 9), rand(16, 1, 3, 3), rand(1, 2, 1, 1, 8)
    want = convolve(np.maximum(data, 0), weight, (1, 1), (1, 1, 1, 1), (1, 1), 16)
    func = te.create_prim_func([x, k, b, y])
    expected = np.clip(block(want, 8) + bias, 0, 6).astype("float32")
    assert_runs(func, RULE, [block(data, 8), _pack(weight, 8), bias], [expected])


def test_symbolic_rows_and_columns_with_an_epilogue() -> None:
    """A tile of one pixel has no loop; the symbolic loop around it must not be unrolled."""
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    x = te.placeholder((1, 2, h, w, 8), name="x")
    k = te.placeholder((2, 1, 3, 3, 1, 8), name="k")
    y = topi.nn.relu(depthwise_conv2d_nchwc(x, k, padding=(1, 1, 1, 1)))
    data, weight = rand(1, 16, 5, 7), rand(16, 1, 3, 3)
    want = np.maximum(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 16), 0)
    func = te.create_prim_func([x, k, y])
    expected = block(want, 8).astype("float32")
    assert_runs(func, RULE, [block(data, 8), _pack(weight, 8)], [expected])


def _with_silu(image: te.Tensor, kernel: te.Tensor, border: int) -> PrimFunc:
    y = depthwise_conv2d_nchwc(image, kernel, padding=(border,) * 4)
    silu = te.compute(y.shape, lambda *i: y(*i) * tirx.sigmoid(y(*i)), name="silu")
    return te.create_prim_func([image, kernel, silu])


@pytest.mark.parametrize(("size", "kernel"), [(7, 5), (14, 5), (23, 3), (1, 3)])
@pytest.mark.parametrize("layout", ["blocks", "channels last", "symbolic"])
def test_a_long_epilogue_equals_numpy(size: int, kernel: int, layout: str) -> None:
    extent = tirx.Var("h", "int64") if layout == "symbolic" else size
    held = (1, 24) if layout == "channels last" else (3, 8)
    x = te.placeholder((2, held[0], extent, extent, held[1]), name="x")
    k = te.placeholder((3, 1, kernel, kernel, 1, 8), name="w")
    data, weight = rand(2, 24, size, size), rand(24, 1, kernel, kernel)
    border = kernel // 2
    want = convolve(data, weight, (1, 1), (border,) * 4, (1, 1), 24)
    want = block(want / (1 + np.exp(-want)), held[1]).astype("float32")
    func = _with_silu(x, k, border)
    assert_runs(func, RULE, [block(data, held[1]), _pack(weight, 8)], [want])


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_long_epilogue_is_apart_from_the_sums(kernel: int) -> None:
    """In one block LLVM computes pixel after pixel, each a chain of dependent multiply-adds."""
    x = te.placeholder((1, 4, 14, 14, 8), name="x")
    k = te.placeholder((4, 1, kernel, kernel, 1, 8), name="w")
    asm = assembly(_with_silu(x, k, kernel // 2), RULE)
    assert "vdivps" in asm
    assert not [line for line in hot_loop(asm, "vfmadd") if line.startswith("vdivps")]


def test_border_is_added_to_the_rows_of_a_task_only() -> None:
    """No bordered copy of the whole image: the border's buffer is a few rows."""
    x = te.placeholder((1, 4, 112, 112, 8), name="x")
    k = te.placeholder((4, 1, 3, 3, 1, 8), name="w")
    func = te.create_prim_func([x, k, depthwise_conv2d_nchwc(x, k, padding=(1, 1, 1, 1))])
    sch = RULE.apply(func, machine(AVX2))
    pad = sch.get_sblock("pad_border")
    init = sch.get_sblock("depthwise_tiles_init")
    assert sch.get(sch.get_loops(pad)[0]).same_as(sch.get(sch.get_loops(init)[0]))
    points = np.prod([int(sch.get(loop).extent) for loop in sch.get_loops(pad)[1:]])
    assert points * 4 <= 32 << 10


def test_hot_loop_is_packed_fma_without_spills() -> None:
    x = te.placeholder((1, 4, 56, 56, 8), name="x")
    k = te.placeholder((4, 1, 3, 3, 1, 8), name="w")
    func = te.create_prim_func([x, k, depthwise_conv2d_nchwc(x, k, padding=(1, 1, 1, 1))])
    loop = hot_loop(assembly(func, RULE), "vfmadd")
    packed = [line for line in loop if re.match(r"vfmadd\w+ps\s", line)]
    assert len(packed) >= 8 * 7, "all taps of a tile but the first in one block"
    assert not [line for line in loop if re.search(r"vmov\w+\s+%ymm\d+, .*\(%rsp\)", line)]


def test_channels_must_match() -> None:
    x = te.placeholder((1, 2, 5, 5, 8), name="x")
    k = te.placeholder((1, 1, 3, 3, 1, 8), name="w")
    with pytest.raises(ValueError, match="do not match"):
        depthwise_conv2d_nchwc(x, k)


@pytest.mark.parametrize(
    ("lanes", "config"),
    [
        (4, {"mcpu": "nehalem", "mtriple": "x86_64-linux-gnu"}),
        (16, {"mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"}),
        (4, {"mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"}),
    ],
)
def test_builds_for_other_processors(lanes: int, config: dict[str, str]) -> None:
    x = te.placeholder((1, 2, 9, 9, lanes), name="x")
    k = te.placeholder((2, 1, 3, 3, 1, lanes), name="w")
    func = te.create_prim_func([x, k, depthwise_conv2d_nchwc(x, k, padding=(1, 1, 1, 1))])
    assert compiled(func, RULE, Target({"kind": "llvm", "num-cores": 4, **config}))
