"""Products of 8-bit integers under the emulator: exact numbers, counts, ptxas."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.byte_products import ByteCase, byte_convolution, byte_matmul
from tests.cuda.emulate import run_kernel
from tests.cuda.emulator.launch import Fault, Traffic
from tests.cuda.kernel_set import Kernels
from tests.cuda.ptxas import SM_80, SM_80_OPTIONS, cuda_source, disassemble, kernel_usage
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.byte_matmul import TYPES, ByteProduct
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tile_choice import BYTE_TILES, ByteTile, choose_tile

SMALL = ByteTile(32, 32, 64, 16, 16)  # two by two warps, and little code
WIDE = ByteTile(32, 64, 64, 32, 32)
SM_75 = Target({**SM_80_OPTIONS, "arch": "sm_75"})
TILED = {
    "whole_tiles": (byte_matmul(64, 64, 256, requantized=True), WIDE),
    "ragged": (byte_matmul(37, 72, 80, types=("int8", "int8")), SMALL),
    "unsigned": (byte_matmul(33, 45, 64, types=("uint8", "uint8")), SMALL),
    "rows_that_begin_anywhere": (byte_matmul(40, 45, 50), SMALL),
    "rows_that_begin_at_4_bytes": (byte_matmul(40, 46, 44), SMALL),
    "columns_apart": (byte_matmul(40, 48, 64, by_columns=False), SMALL),
    "batch_of_any_rows": (
        byte_matmul(45, 40, 32, batch=2, by_columns=False, symbolic=True),
        SMALL,
    ),
    "an_image": (byte_convolution(7, 3, 21, 3, channels_first=True), SMALL),
    "strided_convolution": (byte_convolution(7, 16, 40, 3, stride=2), SMALL),
    "groups": (byte_convolution(6, 32, 48, 3, groups=2), SMALL),
}
FEW_ROWS = {
    "eight_rows": (byte_matmul(8, 45, 80), SM_80),
    "one_row": (byte_matmul(1, 16, 1056, types=("int8", "int8"), requantized=True), SM_80),
    "words": (byte_matmul(3, 18, 36, types=("uint8", "uint8")), SM_80),
    "older": (byte_matmul(19, 30, 48, symbolic=True), SM_75),
}
CASES = {name: case for name, (case, _) in {**TILED, **FEW_ROWS}.items()}
_WAIT = "tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1"
BROKEN = {
    "no_barrier_before_reading": ("__syncthreads();", ";", 0, "race|in flight|never written"),
    "no_wait": (f"{_WAIT}();", ";", 0, "in flight"),
}


def tiled(case: ByteCase, tile: ByteTile) -> PrimFunc:
    return ByteProduct(match_product(case.func, TYPES), tile).write(case.func)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    functions = {name: tiled(case, tile) for name, (case, tile) in TILED.items()}
    for name, (case, target) in FEW_ROWS.items():
        scheduled = schedule_func(case.func, target)
        assert scheduled.rule == "byte_rows", (name, scheduled.declined)
        functions[name] = scheduled.func
    whole = Kernels(functions, cuda_source(functions))
    return whole.with_broken("whole_tiles", {name: how[:3] for name, how in BROKEN.items()})


def run(kernels: Kernels, name: str, kernel: str = "", backward: bool = False) -> Traffic:
    case = CASES[name]
    inputs, result = case.inputs(), np.full(case.result, 77, case.out_type)
    traffic = run_kernel(
        kernels.functions[name],
        kernels.source,
        [*inputs, result],
        kernel=kernel or f"{name}_kernel",
        sizes=case.sizes,
        backward=backward,
    )
    np.testing.assert_array_equal(result, case.expected(*inputs))
    return traffic


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_exact_and_no_bank_conflicts(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        assert run(kernels, name, backward=backward).bank_conflicts == 0


def test_counts_of_a_small_product(kernels: Kernels) -> None:
    traffic, tile = run(kernels, "whole_tiles"), WIDE
    assert traffic.matrix_instructions == 64 * 64 * 256 // (16 * 8 * 32)
    operands = 64 * 64 * 256 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    biases = 4 * 64 * 64  # read anew for each row, from the cache
    assert traffic.global_read_bytes <= operands + biases
    assert traffic.global_written_bytes == 64 * 64


def test_few_rows_read_each_column_once(kernels: Kernels) -> None:
    traffic = run(kernels, "one_row")
    warps = 16 // 4
    assert traffic.global_read_bytes <= 16 * 1056 + warps * (1056 + 32)
    assert traffic.matrix_instructions == 0


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught(name: str, kernels: Kernels) -> None:
    with pytest.raises(Fault, match=BROKEN[name][3]):
        run(kernels, "whole_tiles", kernel=name)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_counts_of_4096_cubed(arch: str) -> None:
    n = 4096
    target = Target({"kind": "cuda", "arch": arch})
    result = schedule_func(byte_matmul(n, n, n).func, target)
    assert result.rule == "byte_matmul"
    gpu = Machine.from_target(target).gpu
    assert gpu is not None
    tile = choose_tile(n, n, n, 1, gpu, BYTE_TILES)
    assert tile.stages >= 3
    counts = count_instructions(result.func)
    assert counts["mma_int"] == 32 * n**3 // (16 * 8 * 32)  # 32 lanes take part in each
    minimum = n**3 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert minimum <= 16 * counts["cp_async_cg"] <= 1.15 * minimum


def test_others_are_declined_with_a_reason() -> None:
    def reason(func: PrimFunc, rule: str, target: Target = SM_80) -> str:
        return dict(schedule_func(func, target).declined)[rule]

    many = byte_matmul(64, 64, 64).func
    assert "Tensor Cores" in reason(many, "byte_rows")
    assert "words" in reason(byte_matmul(4, 64, 50).func, "byte_rows")
    assert "sm_80" in reason(byte_matmul(64, 64, 64, by_columns=False).func, "byte_matmul", SM_75)
    old = Target({**SM_80_OPTIONS, "arch": "sm_60"})
    assert "sm_61" in reason(many, "byte_rows", old)


def test_no_kernel_spills(kernels: Kernels, nvcc: str) -> None:
    """Registers as the model has them, or fewer; small tiles, and the largest ones."""
    large = {f"tile_{at}": tile for at, tile in enumerate(BYTE_TILES[::4])}
    functions = {name: tiled(byte_matmul(4096, 4096, 4096), tile) for name, tile in large.items()}
    functions |= {name: kernels.functions[name] for name in ("eight_rows", "one_row")}
    usage = kernel_usage(nvcc, cuda_source(functions))
    assert {name: used for name, used in usage.items() if used.spills or used.stack} == {}
    for name, tile in large.items():
        used = usage[f"{name}_kernel"]
        assert used.registers <= min(tile.registers, 65536 // tile.threads, 255)
        assert used.resident_warps(tile.threads, dynamic=tile.shared_bytes) >= 8
    assert usage["eight_rows_kernel"].resident_warps(128) >= 16  # of 64


def test_the_machine_code_is_what_was_meant(nvcc: str, nvdisasm: str) -> None:
    """Integer Tensor Core instructions of 32 steps, and dot products of four bytes."""
    product = tiled(*TILED["ragged"])
    rows = schedule_func(byte_matmul(2, 16, 64).func, SM_80).func
    code = disassemble(nvcc, nvdisasm, cuda_source({"tiled": product, "rows": rows}))
    assert code.count("IMMA.16832.S8.S8") == SMALL.depth // 32 * (SMALL.warp_columns // 8)
    assert "LDSM.16.M88.4" in code
    assert "LDGSTS.E.BYPASS.LTC128B.128" in code
    assert "IDP.4A.U8.S8" in code
    assert "LDG.E.128" in code
