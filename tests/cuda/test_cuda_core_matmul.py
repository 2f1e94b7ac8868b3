"""Products of float32 on CUDA cores under the emulator: numbers, counts, ptxas."""

from __future__ import annotations

import pytest
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.emulator.launch import Fault
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolution, matmul
from tests.cuda.ptxas import SM_80, cuda_source, kernel_usage
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.cuda_core_matmul import CudaCoreProduct
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tile_choice import LANE_TILES, LaneTile, choose_tile

RULE = "cuda_core_matmul"
SMALL = LaneTile(32, 64, 16, 16, 32)  # two by two warps, lanes of 4 x 4 sums
CASES = {
    "whole_tiles": matmul(64, 64, 32, dtype="float32"),
    "ragged": matmul(37, 68, 20, dtype="float32"),
    "rows_that_begin_anywhere": matmul(40, 45, 50, dtype="float32"),
    "transposed": matmul(40, 45, 12, dtype="float32", transposed="b"),
    "transposed_left": matmul(36, 64, 24, dtype="float32", transposed="a", epilogue=False),
    "an_image": convolution(8, 3, 36, 3, stride=2, channels_first=True, dtype="float32"),
    "prologue": matmul(37, 68, 20, dtype="float32", prologue=True),
    "groups": convolution(6, 24, 48, 3, groups=3, dtype="float32"),
    "convolution": convolution(7, 8, 36, 3, stride=2, dtype="float32"),
}
BROKEN = {
    "no_barrier": ("__syncthreads();", ";", 0, "race|in flight|never written"),
    "waits_too_little": ("wait_group_1()", "wait_group_2()", 0, "in flight"),
}


def scheduled(case: Case, tile: LaneTile) -> PrimFunc:
    return CudaCoreProduct(match_product(case.func, ["float32"]), tile).write(case.func)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    functions = {name: scheduled(case, SMALL) for name, case in CASES.items()}
    whole = Kernels(functions, cuda_source(functions))
    wait = "__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_"
    laxer = f'{wait}2() {{ asm volatile("cp.async.wait_group 2;" : : : "memory"); }}\n'
    whole = Kernels(functions, whole.source.replace(f"{wait}1()", f"{laxer}{wait}1()", 1))
    return whole.with_broken("whole_tiles", {name: how[:3] for name, how in BROKEN.items()})


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        assert kernels.run(name, CASES[name], backward=backward).bank_conflicts == 0


def test_counts_of_a_small_product(kernels: Kernels) -> None:
    traffic = kernels.run("whole_tiles", CASES["whole_tiles"])
    operands = 4 * 64 * 64 * 32 * (SMALL.rows + SMALL.columns) // (SMALL.rows * SMALL.columns)
    assert traffic.global_read_bytes <= 1.15 * (operands + 4 * 64 * 64 + 4 * 64)
    assert traffic.global_written_bytes == 4 * 64 * 64


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught(name: str, kernels: Kernels) -> None:
    with pytest.raises(Fault, match=BROKEN[name][3]):
        kernels.run("whole_tiles", CASES["whole_tiles"], kernel=name)


def test_the_rule_takes_products_with_many_rows() -> None:
    n = 4096
    result = schedule_func(matmul(n, n, n, dtype="float32", epilogue=False).func, SM_80)
    assert result.rule == RULE
    gpu = Machine.from_target(SM_80).gpu
    assert gpu is not None
    tile = choose_tile(n, n, n, 1, gpu, LANE_TILES)
    minimum = 4 * n**3 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert count_instructions(result.func)["cp_async_cg"] * 16 == minimum
    old = Target({"kind": "cuda", "arch": "sm_75"})
    older = schedule_func(matmul(n, n, n, dtype="float32", epilogue=False).func, old)
    assert "sm_80" in dict(older.declined)[RULE]


def test_tiles_do_not_spill(nvcc: str) -> None:
    """Registers are as the model has them, or fewer."""
    names = {f"tile_{at}": tile for at, tile in enumerate(LANE_TILES[::2])}
    sources = {}
    for at, (name, tile) in enumerate(names.items()):
        order = ("", "ab", "b")[at]
        sources[name] = scheduled(matmul(1024, 1024, 1024, dtype="float32", transposed=order), tile)
    usage = kernel_usage(nvcc, cuda_source(sources))
    for name, tile in names.items():
        used = usage[f"{name}_kernel"]
        assert used.spills == used.stack == 0
        assert used.registers <= min(tile.registers, 65536 // tile.threads, 255), tile
