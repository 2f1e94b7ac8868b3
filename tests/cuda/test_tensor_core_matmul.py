"""Products on Tensor Cores under the emulator: numbers, counts, and the faults of broken ones."""

from __future__ import annotations

import pytest
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.emulator.launch import Fault
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolution, matmul
from tests.cuda.ptxas import SM_80, SM_80_OPTIONS, cuda_source, disassemble, kernel_usage
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda import shared_tile
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tensor_core_matmul import TYPES, TensorCoreProduct
from tir_schedules.cuda.tile_choice import MATRIX_TILES, Tile, choose_tile

RULE = "tensor_core_matmul"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90")
SMALL = Tile(32, 32, 32, 16, 16)  # two by two warps, and little code
WIDE = Tile(32, 64, 32, 32, 32)  # two warps, each with several rows and columns of `mma`
CASES = {
    "whole_tiles": (matmul(64, 64, 128), WIDE),
    "ragged": (matmul(37, 72, 40), SMALL),
    "odd_columns": (matmul(33, 45, 48, transposed="b"), SMALL),
    "rows_that_begin_anywhere": (matmul(40, 45, 50), SMALL),
    "rows_that_begin_at_4_bytes": (matmul(40, 46, 38), SMALL),
    "an_image": (convolution(7, 3, 21, 3, channels_first=True), SMALL),
    "prologue": (matmul(37, 72, 40, prologue=True), SMALL),
    "groups": (convolution(6, 32, 48, 3, groups=2), SMALL),
    "transposed_bfloat16": (matmul(40, 64, 72, transposed="ab", dtype="bfloat16"), SMALL),
    "batch_of_any_rows": (matmul(45, 40, 24, batch=2, epilogue=False, symbolic=True), SMALL),
    "strided_convolution": (convolution(7, 16, 40, 3, stride=2), SMALL),
}
_BARRIER, _WAIT = "__syncthreads();", "wait_group_async_wait_group_1();"
BROKEN = {  # what of `whole_tiles` is replaced by what, and what is found then
    "no_barrier_before_reading": (_BARRIER, ";", 0, "race|in flight|never written"),
    "no_barrier_before_epilogue": (_BARRIER, ";", 1, "race"),
    "no_wait": ("tvm_builtin_ptx_cp_async_" + _WAIT, ";", 0, "in flight"),
    "reads_past_a_row": ("(&(a_ptr[(", "(&(a_ptr[8192 + (", 0, "outside a buffer"),
}


def of_4096_cubed(arch: str) -> Tile:
    """Return the tile that the model chooses for a product of 4096 x 4096 x 4096."""
    gpu = Machine.from_target(Target({"kind": "cuda", "arch": arch})).gpu
    assert gpu is not None
    return choose_tile(4096, 4096, 4096, 1, gpu, MATRIX_TILES)


for arch in ("sm_80", "sm_90"):  # one block of it: the banks it meets are those of each block
    tile = of_4096_cubed(arch)
    one_block = matmul(tile.rows, tile.columns, 2 * tile.depth, epilogue=False)
    CASES[f"block_of_4096_on_{arch}"] = (one_block, tile)


def scheduled(case: Case, tile: Tile) -> PrimFunc:
    return TensorCoreProduct(match_product(case.func, TYPES), tile).write(case.func)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """Schedule all cases and compile them at once: g++ runs for seconds."""
    functions = {name: scheduled(case, tile) for name, (case, tile) in CASES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shared_tile, "swizzled", lambda row, chunk, chunks, *_, **__: row * chunks + chunk
        )
        functions["unswizzled"] = scheduled(*CASES["whole_tiles"])
    whole = Kernels(functions, cuda_source(functions))
    return whole.with_broken("whole_tiles", {name: how[:3] for name, how in BROKEN.items()})


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        assert kernels.run(name, CASES[name][0], backward=backward).bank_conflicts == 0


def test_counts_of_a_small_product(kernels: Kernels) -> None:
    """64 x 64 x 128: the fewest `mma`, and little more than the tiles' own bytes."""
    case, tile = CASES["whole_tiles"]
    traffic = kernels.run("whole_tiles", case)
    assert traffic.matrix_instructions == 64 * 64 * 128 // (16 * 8 * 16)
    operands = 2 * 64 * 64 * 128 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert traffic.global_read_bytes <= 1.15 * (operands + 2 * 64 * 64 + 2 * 64)
    assert traffic.global_written_bytes == 2 * 64 * 64


def test_without_the_swizzle_banks_conflict(kernels: Kernels) -> None:
    assert kernels.run("unswizzled", CASES["whole_tiles"][0]).bank_conflicts > 100


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught(name: str, kernels: Kernels) -> None:
    with pytest.raises(Fault, match=BROKEN[name][3]):
        kernels.run("whole_tiles", CASES["whole_tiles"][0], kernel=name)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_counts_of_4096_cubed(arch: str) -> None:
    n = 4096
    target = Target({"kind": "cuda", "arch": arch})
    case = matmul(n, n, n, epilogue=False)
    result = schedule_func(case.func, target)
    assert result.rule == RULE
    gpu = Machine.from_target(target).gpu
    assert gpu is not None
    tile = of_4096_cubed(arch)
    assert tile.stages >= 3
    assert tile.shared_bytes <= gpu.block_shared_bytes
    counts = count_instructions(result.func)
    assert counts["mma"] == 32 * n**3 // (16 * 8 * 16)  # 32 lanes take part in each
    minimum = 2 * n**3 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert 16 * counts["cp_async_cg"] <= 1.15 * minimum
    assert counts["cp_async_cg"] * 16 >= minimum


def test_the_model_prefers_tiles_that_fit() -> None:
    for arch in ARCHS:
        gpu = Machine.from_target(Target({"kind": "cuda", "arch": arch})).gpu
        assert gpu is not None
        large, narrow = (choose_tile(rows, 4096, 4096, 1, gpu, MATRIX_TILES) for rows in (4096, 8))
        assert large.rows * large.columns >= 128 * 64
        assert narrow.rows <= 32
        for tile in (large, narrow):
            assert tile.shared_bytes <= gpu.block_shared_bytes
            assert gpu.blocks_together(tile.threads, tile.registers, tile.shared_bytes) >= 1


def test_others_are_declined_with_a_reason() -> None:
    def reason(case: Case, arch: str = "sm_80") -> str:
        result = schedule_func(case.func, Target({"kind": "cuda", "arch": arch}))
        assert result.rule != RULE
        return dict(result.declined)[RULE]

    assert "float32" in reason(matmul(64, 64, 64, dtype="float32", epilogue=False))
    assert "sm_80" in reason(matmul(64, 64, 64), "sm_75")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_tiles_do_not_spill(arch: str, nvcc: str) -> None:
    """Registers as the model has them, or fewer, for whole tiles and for ragged ones.

    A product of few steps is the hardest: nvcc would unroll the loop over its stages.
    """
    tiles = {f"tile_{at}": tile for at, tile in enumerate(MATRIX_TILES[::3])}
    ragged = matmul(197, 776, 200)
    functions = {name: scheduled(matmul(4096, 4096, 4096), tile) for name, tile in tiles.items()}
    tiles["ragged"] = MATRIX_TILES[0]
    functions["ragged"] = scheduled(ragged, MATRIX_TILES[0])
    if arch == "sm_90":  # the machine code of whole tiles differs little
        functions = {"ragged": functions["ragged"], "tile_1": functions["tile_1"]}
    # In one file: their shared memory is one external array.
    functions["float32"] = schedule_func(matmul(64, 64, 64, dtype="float32").func, SM_80).func
    target = Target({**SM_80_OPTIONS, "arch": arch})
    usage = kernel_usage(nvcc, cuda_source(functions, target), arch)
    assert usage.pop("float32_kernel").spills == 0
    for name, used in usage.items():
        tile = tiles[name.removesuffix("_kernel")]
        assert used.spills == used.stack == 0, tile
        assert used.registers <= min(tile.registers, 65536 // tile.threads, 255), tile
        assert used.resident_warps(tile.threads, arch, tile.shared_bytes) >= 8, tile


def test_the_machine_code_is_what_was_meant(nvcc: str, nvdisasm: str) -> None:
    """Tensor Core instructions, matrices loaded from shared memory, copies of 16 bytes past L1."""
    tile = MATRIX_TILES[-1]
    code = disassemble(nvcc, nvdisasm, cuda_source({"main": scheduled(CASES["ragged"][0], tile)}))
    multiplications = tile.depth // 16 * (tile.warp_rows // 16) * (tile.warp_columns // 8)
    assert code.count("HMMA.16816.F32") == multiplications
    assert "LDSM.16.M88.4" in code
    assert "LDSM.16.MT88.4" in code
    assert "LDGSTS.E.BYPASS.LTC128B.128" in code
