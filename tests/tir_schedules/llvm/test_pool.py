"""Blocked pools: windows over the border, NaN, epilogues, and their machine code."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.tir_schedules.llvm.blocked_images import block, pool, rand
from tests.tir_schedules.llvm.scheduled_kernel import AVX2, assembly, assert_runs, hot_loop, machine
from tir_schedules.llvm.pool import RULE, global_avg_pool_nchwc, pool2d_nchwc, pool_extent
from tir_schedules.rule import Decline

Four = tuple[int, int, int, int]

_CASES = [
    ((1, 16, 14, 14), 8, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False),
    ((2, 8, 11, 13), 8, (2, 3), (1, 2), (0, 1, 1, 0), (1, 1), False),
    ((1, 8, 13, 13), 8, (3, 3), (2, 2), (0, 0, 0, 0), (1, 1), True),
    ((1, 8, 14, 14), 8, (3, 3), (2, 2), (0, 0, 0, 0), (1, 1), True),
    ((1, 6, 9, 9), 3, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), False),
    ((1, 5, 7, 7), 1, (7, 7), (1, 1), (0, 0, 0, 0), (1, 1), False),
    ((2, 3, 7, 5), 1, (2, 2), (2, 2), (1, 1, 1, 1), (1, 1), False),
    ((1, 8, 6, 6), 8, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), False),
    ((1, 8, 1, 1), 8, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), False),
    ((1, 8, 7, 7), 8, (2, 2), (2, 2), (1, 1, 1, 1), (1, 1), True),
]


def _out(image: tuple[int, ...], case: tuple) -> tuple[int, int]:
    _, _, kernel, strides, (t, lf, b, r), dilation, ceil = case
    return tuple(
        pool_extent(image[2 + at], *pads, kernel[at], strides[at], dilation[at], ceil)
        for at, pads in enumerate([(t, b), (lf, r)])
    )  # type: ignore[return-value]


@pytest.mark.parametrize("case", _CASES)
def test_max_pool_equals_numpy(case: tuple) -> None:
    image, size, kernel, strides, padding, dilation, ceil = case
    n, c, h, w = image
    x = te.placeholder((n, c // size, h, w, size), name="x")
    y = pool2d_nchwc(x, "max", kernel, strides, padding, dilation, ceil_mode=ceil)
    data = rand(*image)
    data[0, 0, h // 2, w // 2] = np.nan
    data[0, -1] = -np.inf
    window = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
    want = pool(np.max, data, _out(image, case), fill=-np.inf, **window)
    assert np.isnan(want).any()
    assert_runs(
        te.create_prim_func([x, y]),
        RULE,
        [block(data, size)],
        [block(want, size).astype("float32")],
        0.0,
    )


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("case", _CASES)
def test_avg_pool_equals_numpy(case: tuple, include: bool) -> None:
    image, size, kernel, strides, padding, dilation, ceil = case
    n, c, h, w = image
    top, left, bottom, right = padding
    x = te.placeholder((n, c // size, h, w, size), name="x")
    y = pool2d_nchwc(x, "avg", kernel, strides, padding, dilation, include, ceil)
    data, out = rand(*image), _out(image, case)
    window = {"kernel": kernel, "strides": strides, "dilation": dilation}
    total = pool(np.sum, data, out, fill=0.0, padding=padding, **window)
    counted = np.ones((1, 1, h, w))
    if include:
        counted = np.pad(counted, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=1)
        padding = (0, 0, 0, 0)
    count = pool(np.sum, counted, out, fill=0.0, padding=padding, **window)
    want = block(total / np.maximum(count, 1), size).astype("float32")
    assert_runs(te.create_prim_func([x, y]), RULE, [block(data, size)], [want])


@pytest.mark.parametrize("image", [(1, 16, 7, 7), (3, 8, 1, 1), (1, 6, 5, 13)])
def test_global_average_with_an_epilogue(image: tuple[int, ...]) -> None:
    size = 8 if image[1] % 8 == 0 else 3
    n, c, h, w = image
    x = te.placeholder((n, c // size, h, w, size), name="x")
    data = rand(*image)
    want = np.maximum(block(data.astype("float64").mean((2, 3), keepdims=True), size), 0)
    func = te.create_prim_func([x, topi.nn.relu(global_avg_pool_nchwc(x))])
    assert_runs(func, RULE, [block(data, size)], [want.astype("float32")])


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("size", "stride"), [((5, 9), 2), ((1, 1), 1), ((12, 4), 1)])
def test_symbolic_images(kind: str, size: tuple[int, int], stride: int) -> None:
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    x = te.placeholder((1, 2, h, w, 8), name="x")
    y = topi.nn.relu(pool2d_nchwc(topi.exp(x), kind, (3, 3), (stride, stride), (1, 1, 1, 1)))
    data = rand(1, 16, *size)
    window = {"kernel": (3, 3), "strides": (stride, stride), "padding": (1,) * 4}
    out = tuple((extent - 1) // stride + 1 for extent in size)
    fill, mean = (-np.inf, np.max) if kind == "max" else (np.nan, np.nanmean)
    want = pool(mean, np.exp(data), out, fill=fill, dilation=(1, 1), **window)
    func = te.create_prim_func([x, y])
    assert_runs(func, RULE, [block(data, 8)], [block(want, 8).astype("float32")])


def test_a_border_is_added_to_rows_and_tested_by_no_tap() -> None:
    """ResNet's first pool: with a test at each tap it took 2.4 times as long."""
    x = te.placeholder((1, 8, 112, 112, 8), name="x")
    y = pool2d_nchwc(x, "max", (3, 3), (2, 2), (1, 1, 1, 1))
    sch = RULE.apply(te.create_prim_func([x, y]), machine(AVX2))
    copied = [int(sch.get(loop).extent) for loop in sch.get_loops("pad_border")]
    assert np.prod(copied[1:]) == 3 * 113 * 8
    body = sch.get(sch.get_sblock("max_pool_tiles_update")).body
    assert "if_then_else" not in str(body)


def test_max_is_a_vector_compare_and_blend() -> None:
    x = te.placeholder((1, 4, 56, 56, 8), name="x")
    func = te.create_prim_func([x, pool2d_nchwc(x, "max", (2, 2), (2, 2))])
    asm = assembly(func, RULE)
    loop = hot_loop(asm, "vcmp")
    assert any("vcmp" in line and "ymm" in line for line in loop)
    assert "fmaxf" not in asm


def test_other_functions_are_declined() -> None:
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Decline, match="0 blocks tagged"):
        RULE.apply(te.create_prim_func([x, topi.nn.relu(x)]), machine(AVX2))


def test_other_kinds_are_refused() -> None:
    x = te.placeholder((1, 1, 4, 4, 8), name="x")
    with pytest.raises(ValueError, match="'max' or 'avg'"):
        pool2d_nchwc(x, "median", (2, 2))
