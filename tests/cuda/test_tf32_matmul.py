"""Products in tf32 under the emulator: numbers within its error, counts, ptxas, the option."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm.tirx import PrimFunc

import relaxc
from tests.cuda.emulate import run_kernel
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import Case, convolution, matmul
from tests.cuda.ptxas import SM_80, compile_ptx, cuda_source, disassemble, kernel_usage, no_compiler
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tf32_matmul import RULE, Tf32Product
from tir_schedules.cuda.tile_choice import TF32_TILES, Tf32Tile, choose_tile

SMALL = Tf32Tile(32, 32, 16, 16, 16)
MACHINE = replace(Machine.from_target(SM_80), rounds_to_tf32=True)


def rounded(values: np.ndarray) -> np.ndarray:
    """Return float32 numbers, as float64, to the nearest of 11 bits, away from zero in between."""
    bits = values.astype("float32").view("uint32")
    return ((bits + 0x1000) & 0xFFFFE000).view("float32").astype("float64")


def in_tf32(case: Case) -> Case:
    """Return the case with what it gives when its operands are rounded and its sums are exact."""
    return replace(case, expected=lambda x, y, *more: case.expected(rounded(x), rounded(y), *more))


FLOAT32 = {
    "whole_tiles": (matmul(64, 64, 64, dtype="float32"), Tf32Tile(64, 64, 16, 32, 32)),
    "transposed": (matmul(37, 45, 52, dtype="float32", transposed="b"), SMALL),
    "transposed_left": (
        matmul(36, 64, 40, dtype="float32", transposed="a", epilogue=False),
        replace(SMALL, slices=2),
    ),
    "narrow_tile": (matmul(16, 64, 64, dtype="float32"), Tf32Tile(16, 64, 32, 16, 16)),
    "convolution": (convolution(7, 8, 36, 3, stride=2, dtype="float32"), SMALL),
}
CASES = {name: (in_tf32(case), tile) for name, (case, tile) in FLOAT32.items()}


def scheduled(case: Case, tile: Tf32Tile) -> PrimFunc:
    return Tf32Product(match_product(case.func, ["float32"]), tile).write(case.func)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    functions = {name: scheduled(*how) for name, how in CASES.items()}
    return Kernels(functions, cuda_source(functions))


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_no_bank_conflict(name: str, kernels: Kernels) -> None:
    """Within float32's rounding of the sums of rounded operands."""
    for backward in (False, True):
        moved = kernels.run_all(name, CASES[name][0], backward=backward)
        assert sum(traffic.bank_conflicts for traffic in moved) == 0


def test_the_error_is_that_of_tf32(kernels: Kernels) -> None:
    """2^-11 for each operand, so 2^-10 of the absolute products at most, and not nothing."""
    case = FLOAT32["narrow_tile"][0]
    inputs, result = case.inputs(), case.empty()
    inputs[2][:], inputs[3][:] = 1000, 0  # a bias, so that no sum is cut off at 0
    func = kernels.functions["narrow_tile"]
    traffic = run_kernel(func, kernels.source, [*inputs, result], kernel="narrow_tile_kernel")
    assert traffic.matrix_instructions == 16 * 64 * 64 // (16 * 8 * 8)
    x, y = (array.astype("float64") for array in inputs[:2])
    error = np.abs(result - (x @ y + 1000))
    last_bit = 2.0**-13  # of numbers around 1000
    assert (error <= 2.0**-10 * (np.abs(x) @ np.abs(y)) + last_bit).all()
    assert error.max() > 1e-3


def test_counts_of_4096_cubed() -> None:
    n = 4096
    result = schedule_func(matmul(n, n, n, dtype="float32", epilogue=False).func, SM_80, MACHINE)
    assert result.rule == RULE.name
    assert MACHINE.gpu is not None
    tile = choose_tile(n, n, n, 1, MACHINE.gpu, TF32_TILES)
    counts = count_instructions(result.func)
    assert tile.stages >= 3
    assert counts["mma"] == 32 * n**3 // (16 * 8 * 8)
    minimum = 4 * n**3 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    assert 16 * counts["cp_async_cg"] == minimum


def test_only_who_asks_for_it_gets_tf32() -> None:
    """By the option of `relaxc.compile`; a product of few rows gains nothing and stays exact."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [256, 256])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [256, 256])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])

    def rule(**options: str) -> str:
        with no_compiler():
            compiled = relaxc.compile(model, target=dict(kind="cuda", arch="sm_80"), **options)
        (kernel,) = compiled.report.kernels
        return str(kernel["rule"])

    assert rule(precision="tf32") == RULE.name
    assert rule() == rule(precision="strict") == "cuda_core_matmul"
    few = schedule_func(matmul(4, 256, 256, dtype="float32").func, SM_80, MACHINE)
    assert few.rule == "few_rows"
    exact = schedule_func(matmul(64, 256, 256, dtype="float32").func, SM_80)
    assert 'precision "tf32"' in dict(exact.declined)[RULE.name]


def test_tiles_do_not_spill(nvcc: str) -> None:
    """Registers as the model has them, or fewer; numbers are rounded before they are multiplied."""
    tiles = {f"tile_{at}": tile for at, tile in enumerate(TF32_TILES[::5])}
    orders = dict(zip(tiles, ("", "b"), strict=True))
    source = cuda_source(
        {
            name: scheduled(
                matmul(1024, 1024, 1024, dtype="float32", transposed=orders[name]), tile
            )
            for name, tile in tiles.items()
        }
    )
    for name, used in kernel_usage(nvcc, source).items():
        tile = tiles[name.removesuffix("_kernel")]
        assert used.spills == used.stack == 0, tile
        assert used.registers <= min(tile.registers, 65536 // tile.threads, 255), tile
    code = compile_ptx(nvcc, source)
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in code
    assert "cvt.rna.tf32.f32" in code


def test_the_machine_code_is_what_was_meant(nvcc: str, nvdisasm: str) -> None:
    code = disassemble(nvcc, nvdisasm, cuda_source({"main": scheduled(*CASES["whole_tiles"])}))
    tile = CASES["whole_tiles"][1]
    multiplications = tile.depth // 8 * (tile.warp_rows // 16) * (tile.warp_columns // 8)
    assert code.count("HMMA.1688.F32.TF32") == multiplications
