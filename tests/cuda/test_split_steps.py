"""Products whose steps are divided among blocks: numbers, equal bits each time, counts, ptxas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.emulate import kernel_statements, run_kernels
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolution, matmul
from tests.cuda.ptxas import SM_80, cuda_source, kernel_usage
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.cuda_core_matmul import CudaCoreProduct
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tensor_core_matmul import TYPES, TensorCoreProduct
from tir_schedules.cuda.tile_choice import (
    LANE_TILES,
    MATRIX_TILES,
    LaneTile,
    Tile,
    choose_tile,
    estimate_seconds,
    joining_seconds,
)
from tir_schedules.gpu import Gpu

MATRIX = Tile(32, 32, 32, 16, 16, slices=2)
LANES = LaneTile(32, 64, 16, 16, 32, slices=3)
CASES = {
    "whole_tiles": (matmul(32, 64, 256), MATRIX),
    # Seven trips for three slices: the last one has but one, fewer than the pipeline's stages.
    "uneven_slices": (matmul(37, 45, 200), replace(MATRIX, slices=3)),
    "batch_of_any_rows": (matmul(45, 40, 96, batch=2, symbolic=True), MATRIX),
    "convolution": (convolution(4, 16, 40, 3), replace(MATRIX, slices=4)),
    "float32": (matmul(33, 68, 60, dtype="float32", transposed="b"), replace(LANES, slices=2)),
    "float32_convolution": (convolution(4, 8, 36, 3, dtype="float32"), LANES),
}
DEEP = (128, 512, 16384)  # rows, columns, steps


def scheduled(case: Case, tile: Tile) -> PrimFunc:
    kind = CudaCoreProduct if isinstance(tile, LaneTile) else TensorCoreProduct
    return kind(match_product(case.func, [*TYPES, "float32"]), tile).write(case.func)


def gpu_of(arch: str) -> Gpu:
    gpu = Machine.from_target(Target({"kind": "cuda", "arch": arch})).gpu
    assert gpu is not None
    return gpu


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    functions = {name: scheduled(*how) for name, how in CASES.items()}
    # Without common subexpressions the host computes no arguments that the test does not know.
    return Kernels(functions, cuda_source(functions, cse=False))


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        both = kernels.run_all(name, CASES[name][0], backward=backward)
        assert len(both) == 2
        assert sum(traffic.bank_conflicts for traffic in both) == 0


def test_a_result_has_the_same_bits_whichever_thread_is_first(kernels: Kernels) -> None:
    case, results = CASES["uneven_slices"][0], []
    for backward in (False, True):
        inputs, result = case.inputs(), case.empty()
        func, how = kernels.functions["uneven_slices"], {"kernel": "uneven_slices_kernel"}
        list(run_kernels(func, kernels.source, [*inputs, result], backward=backward, **how))
        results.append(result.view("uint16"))
    assert np.array_equal(*results)


def test_bytes_of_a_small_product(kernels: Kernels) -> None:
    """Each slice of the operands once a tile; the sums of both slices written and read once."""
    products, join = kernels.run_all("whole_tiles", CASES["whole_tiles"][0])
    assert products.global_read_bytes == 2 * 256 * 2 * (32 + 32)  # two columns of blocks
    sums = 4 * 2 * 32 * 64
    assert products.global_written_bytes == sums
    warps = 32 * 64 // 4 // 32  # each reads the bias once for its two rows
    assert join.global_read_bytes == sums + 2 * 32 * 64 + warps * 2 * 64
    assert join.global_written_bytes == 2 * 32 * 64


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("tiles", [MATRIX_TILES, LANE_TILES], ids=["matrix", "lanes"])
def test_the_model_divides_what_does_not_fill_the_gpu(arch: str, tiles: tuple[Tile, ...]) -> None:
    gpu = gpu_of(arch)
    tile = choose_tile(*DEEP, 1, gpu, tiles)
    blocks = -(-DEEP[0] // tile.rows) * -(-DEEP[1] // tile.columns) * tile.slices
    assert tile.slices > 1
    assert blocks >= 0.6 * gpu.multiprocessors
    whole = min(estimate_seconds(each, *DEEP, 1, gpu) for each in tiles)
    assert estimate_seconds(tile, *DEEP, 1, gpu) < 0.6 * whole
    assert choose_tile(4096, 4096, 4096, 1, gpu, tiles).slices == 1


def test_the_model_counts_what_slices_write_and_read_again() -> None:
    gpu, results = gpu_of("sm_80"), 1 << 24
    launch = joining_seconds(2, 0, gpu)
    assert joining_seconds(1, results, gpu) == 0 < launch
    moved = 2 * 4 * 4 * results  # four slices of float32, too many for the L2 cache
    expected = launch + moved / gpu.memory_bytes_per_second
    assert joining_seconds(4, results, gpu) == pytest.approx(expected)


def test_counts_of_a_deep_product() -> None:
    """As many `mma` as without slices, and as many bytes of operands as its tiles have."""
    rows, columns, steps = DEEP
    result = schedule_func(matmul(*DEEP).func, SM_80)
    assert result.rule == "tensor_core_matmul"
    assert len(list(kernel_statements(result.func.body))) == 2
    tile = choose_tile(*DEEP, 1, gpu_of("sm_80"), MATRIX_TILES)
    counts = count_instructions(result.func)
    assert counts["mma"] == 32 * rows * columns * steps // (16 * 8 * 16)
    minimum = 2 * rows * columns * steps * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert 16 * counts["cp_async_cg"] == minimum


def test_slices_do_not_spill(nvcc: str) -> None:
    rows, columns, steps = DEEP
    tile = choose_tile(*DEEP, 1, gpu_of("sm_80"), MATRIX_TILES)
    lanes = choose_tile(*DEEP, 1, gpu_of("sm_80"), LANE_TILES)
    tiles = {"matrix": tile, "lanes": lanes}
    functions = {
        "matrix": scheduled(matmul(rows + 5, columns, steps + 40), tile),  # ragged, uneven
        "lanes": scheduled(matmul(rows, columns, steps, dtype="float32"), lanes),
    }
    usage = kernel_usage(nvcc, cuda_source(functions))
    assert len(usage) == 4
    for name, used in usage.items():
        assert used.spills == used.stack == 0, name
        if name.endswith("_kernel"):
            limit = tiles[name.removesuffix("_kernel")].registers
        else:
            limit = 64
        assert used.registers <= limit, name
