"""Products of few rows under the emulator: numbers, bytes that travel, ptxas, the choice."""

from __future__ import annotations

import re

import pytest
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolution, matmul
from tests.cuda.ptxas import SM_80, compile_ptx, cuda_source, kernel_usage
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.few_rows import RULE, TYPES, FewRows
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.row_tile import RowTile, choose_row_tile, row_seconds

# Rows, steps and columns of a lane, lanes along columns, whether neighbours are steps, bytes.
CASES = {
    "one_row": (matmul(1, 96, 512, dtype="float32"), RowTile(1, 4, 4, 8, False, 4)),
    "transposed": (
        matmul(3, 45, 512, dtype="float32", transposed="b"),
        RowTile(3, 4, 4, 4, True, 4),
    ),
    "float16": (matmul(4, 72, 400), RowTile(4, 4, 8, 4, False, 2, slices=2)),
    "transposed_bfloat16": (
        matmul(2, 72, 400, dtype="bfloat16", transposed="b"),
        RowTile(2, 8, 4, 2, True, 2),
    ),
    "begin_anywhere": (matmul(2, 45, 77, dtype="float32"), RowTile(2, 1, 1, 32, False, 4)),
    "prologue": (matmul(2, 64, 96, dtype="float32", prologue=True), RowTile(2, 4, 1, 32, False, 4)),
    "batch": (
        matmul(5, 40, 64, batch=3, dtype="float32", epilogue=False),
        RowTile(5, 4, 4, 8, False, 4),
    ),
    "convolution": (convolution(2, 8, 24, 3, dtype="float32"), RowTile(8, 4, 4, 4, False, 4)),
    "sixteen_rows": (
        matmul(16, 64, 128, dtype="float32", transposed="a"),
        RowTile(16, 4, 4, 16, False, 4),
    ),
}
DECODING = {  # a step of decoding: rows, columns, steps, type, order of the weights
    "float32_transposed": (4, 4096, 4096, "float32", "b"),
    "float32_16_rows": (16, 4096, 4096, "float32", ""),
    "float16": (1, 4096, 4096, "float16", ""),
    "bfloat16_transposed": (2, 4096, 14336, "bfloat16", "b"),
    "narrow": (1, 512, 28672, "float16", ""),
}


def scheduled(case: Case, tile: RowTile) -> PrimFunc:
    return FewRows(match_product(case.func, TYPES), tile).write(case.func)


def decoding(name: str) -> Case:
    rows, columns, steps, dtype, transposed = DECODING[name]
    return matmul(rows, columns, steps, dtype=dtype, transposed=transposed)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    functions = {name: scheduled(*how) for name, how in CASES.items()}
    return Kernels(functions, cuda_source(functions))


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    for backward in (False, True):
        moved = kernels.run_all(name, CASES[name][0], backward=backward)
        assert sum(traffic.bank_conflicts for traffic in moved) == 0


@pytest.mark.parametrize("name", ["one_row", "transposed_bfloat16"])
def test_weights_travel_once(name: str, kernels: Kernels) -> None:
    """Bytes in whole sectors: the weights once, the rows once a block, little else."""
    case, tile = CASES[name]
    (rows, columns), steps = case.result, case.shapes[0][1]
    traffic = kernels.run(name, case)
    blocks = -(-columns // tile.columns)
    operands = tile.element_bytes * steps * (columns + blocks * rows)
    ends = traffic.global_read_bytes - operands  # a bias and a residual, 16 bytes of some sectors
    assert 0 < ends <= 2 * 2 * tile.element_bytes * rows * columns
    assert traffic.global_written_bytes <= 2 * tile.element_bytes * rows * columns


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", DECODING)
def test_decoding_is_estimated_to_be_bound_by_memory(name: str, arch: str) -> None:
    gpu = Machine.from_target(Target({"kind": "cuda", "arch": arch})).gpu
    assert gpu is not None
    product = match_product(decoding(name).func, TYPES)
    tile = choose_row_tile(product, gpu)
    assert tile.load * tile.element_bytes == 16
    blocks = -(-product.columns // tile.columns) * tile.slices
    assert blocks >= gpu.multiprocessors // 2
    assert (tile.slices > 1) == (name == "narrow")
    weights = tile.element_bytes * product.columns * product.steps
    least = weights / gpu.memory_bytes_per_second
    assert row_seconds(tile, product, gpu) < 1.5 * least + 6e-6


def test_the_rule_takes_few_rows() -> None:
    def rule(case: Case, arch: str = "sm_80") -> str:
        return schedule_func(case.func, Target({"kind": "cuda", "arch": arch})).rule

    for name in DECODING:
        assert rule(decoding(name)) == RULE.name
    assert rule(matmul(16, 4096, 4096)) == "tensor_core_matmul"
    assert rule(matmul(2, 512, 512), "sm_75") == RULE.name  # it needs no asynchronous copies
    assert rule(matmul(17, 512, 512, dtype="float32")) == "cuda_core_matmul"
    many = schedule_func(matmul(17, 512, 512, dtype="float32", symbolic=True).func, SM_80)
    assert "more than 16 rows" in dict(many.declined)[RULE.name]


def test_loads_have_16_bytes_and_nothing_spills(nvcc: str) -> None:
    names = ("float32_transposed", "float32_16_rows", "float16")
    functions = {name: schedule_func(decoding(name).func, SM_80).func for name in names}
    source = cuda_source(functions)
    gpu = Machine.from_target(SM_80).gpu
    assert gpu is not None
    usage = kernel_usage(nvcc, source)
    loads = compile_ptx(nvcc, source)
    for name in names:
        product = match_product(decoding(name).func, TYPES)
        tile = choose_row_tile(product, gpu)
        used = usage[f"{name}_kernel"]
        assert used.spills == used.stack == 0, name
        assert used.registers <= min(tile.registers, 255), (name, used.registers, tile.registers)
        body = re.search(rf"\.entry {name}_kernel\(.*?\n}}", loads, re.DOTALL)
        assert body is not None
        vectors = re.findall(r"ld\.global\.(?:nc\.)?v4\.\w32", body[0])
        assert len(vectors) >= 4  # of weights, in a trip
        scalar = re.findall(r"ld\.global\.(?:nc\.)?[fbu](?:16|32)\s", body[0])
        assert len(scalar) <= 2 * tile.rows, name  # of what is fused behind
