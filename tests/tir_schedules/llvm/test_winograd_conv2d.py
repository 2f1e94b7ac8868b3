"""Winograd convolution: its matrices, its rounding error, awkward images, epilogues, its choice."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import tvm_ffi
from tvm import s_tir, te, tirx, topi
from tvm.s_tir import SBlock
from tvm.target import Target
from tvm.tirx import Buffer

from tests.tir_schedules.llvm.blocked_images import block, block_kernel, convolve, rand
from tests.tir_schedules.llvm.scheduled_kernel import (
    AVX2,
    AVX512,
    assert_all_run,
    assert_runs,
    machine,
    run,
)
from tir_schedules.blocks import constant
from tir_schedules.llvm.conv_algorithm import MAX_ERROR_GROWTH, choose_winograd
from tir_schedules.llvm.winograd_conv2d import winograd_conv2d, winograd_weight
from tir_schedules.llvm.winograd_matrices import winograd
from tir_schedules.llvm.winograd_rule import RULE
from tir_schedules.llvm.winograd_tile import WinogradSizes, choose_winograd_tile, group_bytes

Four = tuple[int, int, int, int]
OUTPUTS = pytest.mark.parametrize("outputs", [2, 4])
LANES = 8


def _points(weight: np.ndarray, outputs: int) -> np.ndarray:
    """Transform a kernel OIHW to its packed points."""
    matrix = np.array([[float(v) for v in row] for row in winograd(outputs).kernel])
    packed = block_kernel(weight, LANES, LANES).astype("float64")
    return np.einsum("py,oiyxlm,qx->pqoilm", matrix, packed, matrix).astype("float32")


def _image_and_points(
    image: tuple[int, ...], channels: int, outputs: int
) -> tuple[te.Tensor, te.Tensor]:
    n, c, h, w = image
    size = outputs + 2
    x = te.placeholder((n, c // LANES, h, w, LANES), name="x")
    shape = (size, size, channels // LANES, c // LANES, LANES, LANES)
    return x, te.placeholder(shape, name="u")


@OUTPUTS
def test_matrices_filter_exactly(outputs: int) -> None:
    """In fractions y = A^T [(G g) * (B^T d)] is the filter itself, for any g and d."""
    w = winograd(outputs)
    g = [Fraction(k, 7) for k in (3, -5, 2)]
    d = [Fraction(k * k - 5, 3) for k in range(w.points)]
    products = [
        sum(a * b for a, b in zip(kernel, g, strict=True))
        * sum(a * b for a, b in zip(data, d, strict=True))
        for kernel, data in zip(w.kernel, w.data, strict=True)
    ]
    got = [sum(a * p for a, p in zip(row, products, strict=True)) for row in w.results]
    assert got == [sum(g[k] * d[i + k] for k in range(3)) for i in range(outputs)]


@OUTPUTS
@pytest.mark.parametrize(
    ("image", "channels", "padding"),
    [
        ((1, 16, 14, 14), 16, (1, 1, 1, 1)),
        ((2, 8, 7, 9), 24, (1, 1, 1, 1)),
        ((1, 8, 3, 3), 8, (0, 0, 0, 0)),
        ((1, 16, 5, 17), 8, (0, 2, 1, 0)),
        ((3, 8, 1, 1), 8, (1, 1, 1, 1)),
        ((1, 40, 6, 6), 40, (2, 2, 2, 2)),
    ],
)
def test_equals_a_direct_sum(
    outputs: int, image: tuple[int, ...], channels: int, padding: Four
) -> None:
    x, u = _image_and_points(image, channels, outputs)
    func = te.create_prim_func([x, u, winograd_conv2d(x, u, machine(), padding=padding)])
    data, weight = rand(*image), rand(channels, image[1], 3, 3)
    want = block(convolve(data, weight, (1, 1), padding, (1, 1), 1), LANES).astype("float32")
    assert_runs(func, RULE, [block(data, LANES), _points(weight, outputs)], [want])


@OUTPUTS
def test_bias_residual_and_relu_join_the_pixels(outputs: int) -> None:
    x, u = _image_and_points((1, 16, 10, 10), 16, outputs)
    bias = te.placeholder((1, 2, 1, 1, LANES), name="bias")
    y = topi.add(winograd_conv2d(x, u, machine(), padding=(1, 1, 1, 1)), bias)
    side = te.placeholder(y.shape, name="side")
    func = te.create_prim_func([x, u, bias, side, topi.nn.relu(topi.add(y, side))])
    data, weight, b = rand(1, 16, 10, 10), rand(16, 16, 3, 3), rand(1, 2, 1, 1, LANES)
    want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), LANES)
    other = rand(*want.shape)
    inputs = [block(data, LANES), _points(weight, outputs), b, other]
    assert_runs(func, RULE, inputs, [np.maximum(want + b + other, 0).astype("float32")])
    script = RULE.apply(func, machine(AVX2)).mod["main"].script()
    assert 'T.sblock("winograd_pixels")' not in script, "the pixels are no stage of their own"


@OUTPUTS
@pytest.mark.parametrize(
    ("symbolic", "sizes"),
    [
        ("h w", [(1, 1), (4, 4), (7, 9), (30, 13)]),
        ("n h w", [(1, 1), (4, 4), (7, 9), (30, 13)]),
        ("w", [(7, 1), (7, 4), (7, 9), (7, 30)]),
        ("w", [(1, 1), (1, 13)]),
    ],
)
def test_symbolic_images(outputs: int, symbolic: str, sizes: list[tuple[int, int]]) -> None:
    names = symbolic.split()
    known = {"n": 2, "h": sizes[0][0]}
    n, h, w = (tirx.Var(a, "int64") if a in names else known[a] for a in "nhw")
    held = [tirx.const(e, "int64") if isinstance(e, int) else e for e in (n, 2, h, w, LANES)]
    x = te.placeholder(held, name="x")
    u = _image_and_points((1, 16, 1, 1), 24, outputs)[1]
    y = winograd_conv2d(x, u, machine(), padding=(1, 1, 1, 1))
    weight = rand(24, 16, 3, 3)
    calls = []
    for size in sizes:
        data = rand(2, 16, *size)
        want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), LANES)
        inputs = [block(data, LANES), _points(weight, outputs)]
        calls.append((inputs, [np.maximum(want, 0).astype("float32")]))
    assert_all_run(te.create_prim_func([x, u, topi.nn.relu(y)]), RULE, calls)


def test_symbolic_images_have_buffers_of_one_tile() -> None:
    """Only the points and the products of all tiles are of unknown size."""
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    x = te.placeholder((1, 4, h, w, LANES), name="x")
    u = _image_and_points((1, 32, 1, 1), 32, 4)[1]
    func = te.create_prim_func([x, u, winograd_conv2d(x, u, machine(AVX2), padding=(1, 1, 1, 1))])
    sch = RULE.apply(func, machine(AVX2))
    held = sch.get(sch.get_sblock("root")).alloc_buffers
    unknown = [b.name for b in held if any(constant(extent) is None for extent in b.shape)]
    assert sorted(unknown) == ["winograd_points", "winograd_products"]
    sizes = {b.name: math.prod(int(e) for e in b.shape) for b in held if b.name not in unknown}
    assert len(sizes) == 4 and max(sizes.values()) == 6 * 6 * LANES


def test_two_readers_of_the_pixels() -> None:
    x, u = _image_and_points((1, 8, 9, 9), 16, 2)
    y = winograd_conv2d(x, u, machine(), padding=(1, 1, 1, 1))
    second = te.compute(y.shape, lambda *i: y(*i) * tirx.sigmoid(y(*i)), name="silu")
    func = te.create_prim_func([x, u, topi.nn.relu(y), second])
    data, weight = rand(1, 8, 9, 9), rand(16, 8, 3, 3)
    want = block(convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), LANES)
    expected = [np.maximum(want, 0), want / (1 + np.exp(-want))]
    inputs = [block(data, LANES), _points(weight, 2)]
    assert_runs(func, RULE, inputs, [array.astype("float32") for array in expected])


def test_result_in_another_layout() -> None:
    x, u = _image_and_points((1, 8, 6, 6), 16, 2)
    y = winograd_conv2d(x, u, machine(), padding=(1, 1, 1, 1))
    plain = te.compute(
        (1, 16, 6, 6),
        lambda n, c, h, w: y[n, tirx.indexdiv(c, LANES), h, w, tirx.indexmod(c, LANES)],
        name="unblock",
    )
    data, weight = rand(1, 8, 6, 6), rand(16, 8, 3, 3)
    want = convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1).astype("float32")
    func = te.create_prim_func([x, u, plain])
    assert_runs(func, RULE, [block(data, LANES), _points(weight, 2)], [want])


def test_what_precedes_runs_once_per_element() -> None:
    """Tiles overlap: an exponential inlined into the patch would run 2.25 times an element."""
    x, u = _image_and_points((1, 8, 8, 8), 8, 4)
    y = winograd_conv2d(topi.exp(x), u, machine(), padding=(1, 1, 1, 1))
    data, weight = rand(1, 8, 8, 8), rand(8, 8, 3, 3)
    want = block(convolve(np.exp(data), weight, (1, 1), (1, 1, 1, 1), (1, 1), 1), LANES)
    func = te.create_prim_func([x, u, y])
    inputs = [block(data, LANES), _points(weight, 4)]
    assert_runs(func, RULE, inputs, [want.astype("float32")])
    assert RULE.apply(func, machine(AVX2)).mod["main"].script().count("T.exp(") == 1


@OUTPUTS
def test_the_kernel_is_transformed_alike_at_run_time(outputs: int) -> None:
    from tir_schedules.llvm.elementwise import RULE as elementwise

    weight = rand(16, 8, 3, 3)
    w = te.placeholder((2, 1, 3, 3, LANES, LANES), name="w")
    func = te.create_prim_func([w, winograd_weight(w, outputs)])
    want = _points(weight, outputs)
    (got,) = run(func, elementwise, [block_kernel(weight, LANES, LANES)], [want])
    np.testing.assert_array_equal(got, want)


@OUTPUTS
def test_rounding_error_is_what_the_model_says(outputs: int) -> None:
    """Against float64, over 256 channels; a direct sum in float32 is the unit."""
    rng = np.random.default_rng(0)
    channels, size = 256, 12
    data = rng.standard_normal((1, channels, size, size)).astype("float32")
    weight = (rng.standard_normal((LANES, channels, 3, 3)) / 48).astype("float32")
    exact = convolve(data.astype("float64"), weight.astype("float64"), (1, 1), (0,) * 4, (1, 1), 1)
    direct = np.zeros(exact.shape, "float32")
    for c in range(channels):
        for y in range(3):
            for x in range(3):
                part = data[:, c : c + 1, y : y + size - 2, x : x + size - 2]
                direct += part * weight[None, :, c, y, x, None, None]
    tensors = _image_and_points(data.shape, LANES, outputs)
    func = te.create_prim_func([*tensors, winograd_conv2d(*tensors, machine())])
    inputs = [block(data, LANES), _points(weight, outputs)]
    want = block(exact, LANES)
    (got,) = run(func, RULE, inputs, [want.astype("float32")])
    growth = np.sqrt(np.mean((got - want) ** 2) / np.mean((direct - exact) ** 2))
    model = winograd(outputs).error_growth
    assert model / 2 < growth < model * 2
    assert growth < MAX_ERROR_GROWTH


@pytest.mark.parametrize("cores", [1, 2])
def test_winograd_is_chosen_where_products_dominate(cores: int) -> None:
    """ResNet-50's layers on AVX2; weights of 512 x 512 channels weigh more than 7x7 pixels."""
    model = dataclasses.replace(machine(AVX2), cores=cores, l2_bytes=512 << 10)
    chosen = {
        size: choose_winograd(1, channels, channels // LANES, LANES, (size, size), model)
        for channels, size in [(64, 56), (128, 28), (256, 14)]
    }
    assert chosen == {56: 4, 28: 4, 14: 2}
    assert choose_winograd(1, 1024, 1024 // LANES, LANES, (3, 3), model) is None
    assert choose_winograd(1, LANES, 1, LANES, (1, 1), model) is None


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["AVX2", "AVX-512"])
@pytest.mark.parametrize("cores", [1, 2, 8, 64])
def test_groups_stay_in_the_second_level_cache(target: Target, cores: int) -> None:
    """Large images: what a task holds, and how even the tasks are."""
    model = dataclasses.replace(machine(target), cores=cores, l2_bytes=512 << 10)
    lanes = model.lanes()
    for channels, results, size in [(96, 32, 160), (64, 32, 224)]:
        tiles = math.ceil(size / 4) ** 2
        sizes = WinogradSizes(1, channels, results // lanes, lanes, tiles, 4)
        choice = choose_winograd_tile(sizes, model)
        assert choice.grouped or cores > 2, "the caches of many cores hold all points"
        if not choice.grouped:
            continue
        assert group_bytes(sizes, choice) <= model.l2_bytes * 3 // 4
        rounds = math.ceil(math.ceil(tiles / choice.group) / cores)
        assert tiles / (rounds * cores * choice.group) >= 0.75


@pytest.mark.parametrize("cores", [1, 2])
def test_small_images_go_through_each_stage_whole(cores: int) -> None:
    """DenseNet's and ResNet's layers: their points lie in the caches that cores share."""
    model = dataclasses.replace(machine(AVX2), cores=cores, l2_bytes=512 << 10)
    for channels, results, size in [(128, 32, 56), (64, 64, 56), (128, 128, 28)]:
        tiles = math.ceil(size / 4) ** 2
        sizes = WinogradSizes(1, channels, results // LANES, LANES, tiles, 4)
        assert not choose_winograd_tile(sizes, model).grouped


def test_a_group_holds_points_and_one_panel_of_products() -> None:
    """Each task's buffers, and an odd number of cache lines between the points of a tile."""
    x, u = _image_and_points((1, 96, 160, 160), 32, 4)
    func = te.create_prim_func([x, u, winograd_conv2d(x, u, machine(AVX2), padding=(1, 1, 1, 1))])
    sizes = WinogradSizes(1, 96, 4, LANES, 40 * 40, 4)
    choice = choose_winograd_tile(sizes, machine(AVX2))
    assert choice.grouped
    module = RULE.apply(func, machine(AVX2)).mod
    for lower in (
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ):
        module = lower(module)
    held: dict[str, Buffer] = {}

    def visit(block: SBlock) -> None:
        held.update({str(buffer.name): buffer for buffer in block.alloc_buffers})

    tvm_ffi.structural_walk(module["main"].body, (SBlock, visit), order="pre")
    elements = {name: math.prod(int(e) for e in held[name].shape) for name in held}
    assert 4 * (elements["winograd_points"] + elements["winograd_products"]) == group_bytes(
        sizes, choice
    )
    strides = [int(stride) for stride in held["winograd_points"].strides]
    assert strides[3] % 32 == 16 and strides[2] == 6 * strides[3]
