"""Tutorial 12: a matrix product on a GPU, from one thread a result to pipelined Tensor Cores.

    python tutorials/12_tensor_core_matmul.py

`relu(A B + bias + residual)` in float16 is computed by five kernels. Each is run by the emulator on
a small product, which counts what it moves; ptxas, where there is one, says what it takes of a
multiprocessor; and a roofline estimate says what bounds it on an A100 at 4096^3: the rate of the
units it multiplies with, or what the L2 cache can deliver. Nothing here is a measured time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest import mock

from stage_printing import columns, title
from tvm.tirx import Expr, PrimFunc

from tests.cuda.emulator.launch import Traffic
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import matmul
from tests.cuda.ptxas import SM_80, cuda_source, find_tool, kernel_usage
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda import shared_tile
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.tensor_core_matmul import TYPES, TensorCoreProduct
from tir_schedules.cuda.tile_choice import MATRIX_TILES, Tile, choose_tile
from tir_schedules.gpu import Gpu

ROWS, COLUMNS, STEPS = 64, 64, 128
PRODUCTS = ROWS * COLUMNS * STEPS
LARGE = 4096
SMALL_TILE = Tile(64, 64, 32, 32, 32, stages=2)
CASE = matmul(ROWS, COLUMNS, STEPS)


@dataclass(frozen=True)
class Step:
    """One kernel: what it does, the function, and on which units it multiplies."""

    name: str
    text: str
    func: PrimFunc
    tensor_cores: bool


def by_rule(*without: str) -> PrimFunc:
    """Return the kernel of the first rule that is left."""
    return schedule_func(CASE.func, SM_80, without=without).func


def by_tile(tile: Tile) -> PrimFunc:
    """Return the kernel on Tensor Cores with a tile."""
    return TensorCoreProduct(match_product(CASE.func, TYPES), tile).write(CASE.func)


def unswizzled(tile: Tile) -> PrimFunc:
    """Return that kernel with the chunks of its tiles in the order they have in memory."""

    def in_order(row: Expr, chunk: Expr, chunks: int, **_: int) -> Expr:
        return row * chunks + chunk

    with mock.patch.object(shared_tile, "swizzled", in_order):
        return by_tile(tile)


def steps() -> list[Step]:
    """Return the kernels, slowest first."""
    products = ("tensor_core_matmul", "cuda_core_matmul")
    one_result = by_rule(*products, "contraction", "register_rows", "column_kernel", "row_kernel")
    return [
        Step("naive", "a thread for each result", one_result, False),
        Step("shared", "64 x 64 results share what is read", by_rule(*products), False),
        Step("tensor", "Tensor Cores, two stages", unswizzled(SMALL_TILE), True),
        Step("swizzled", "chunks permuted against bank conflicts", by_tile(SMALL_TILE), True),
        Step("pipelined", "four stages in flight", by_tile(replace(SMALL_TILE, stages=4)), True),
    ]


def estimate(bytes_a_product: float, tensor_cores: bool, gpu: Gpu) -> tuple[float, str]:
    """Return the milliseconds of 4096^3 on a GPU, and what bounds them."""
    clocks = LARGE**3 / gpu.multiprocessors
    rate = gpu.matrix_fmas if tensor_cores else gpu.float32_fmas
    multiplying = clocks / rate / gpu.clock_hz
    reading = clocks * bytes_a_product / gpu.l2_bytes_per_clock / gpu.clock_hz
    bound = "L2" if reading > multiplying else "multiplications"
    return 1e3 * max(multiplying, reading), bound


def main() -> None:
    """Print every step."""
    gpu = Machine.from_target(SM_80).gpu
    assert gpu is not None
    kernels = steps()
    source = cuda_source({step.name: step.func for step in kernels})
    run = Kernels({step.name: step.func for step in kernels}, source)
    counted = {step.name: run.run(step.name, CASE) for step in kernels}

    title(f"1: what is moved for {ROWS} x {COLUMNS} x {STEPS}, as the emulator counts it")
    show_counts(kernels, counted)

    title("2: what a kernel takes of a multiprocessor, as ptxas reports it")
    show_usage(kernels, source)

    title(f"3: the roofline of {gpu.name} at {LARGE}^3, in milliseconds")
    show_roofline(kernels, counted, gpu)


def show_counts(kernels: list[Step], counted: dict[str, Traffic]) -> None:
    """Print the counts of each kernel, and check what each step is there for."""
    rows = [
        (
            step.name,
            step.text,
            counted[step.name].global_read_bytes,
            counted[step.name].bank_conflicts,
            counted[step.name].matrix_instructions,
        )
        for step in kernels
    ]
    columns(rows, "kernel", "", "bytes read", "bank conflicts", "mma")
    naive, shared, tensor, swizzled, pipelined = (counted[step.name] for step in kernels)
    assert naive.global_read_bytes > 4 * shared.global_read_bytes
    assert tensor.matrix_instructions == PRODUCTS // (16 * 8 * 16)
    assert tensor.bank_conflicts > 100
    assert swizzled.bank_conflicts == pipelined.bank_conflicts == 0


def show_usage(kernels: list[Step], source: str) -> None:
    """Print registers and spills of each kernel."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        print("    no nvcc here: pip install relaxc[cuda] brings one")
        return
    usage = kernel_usage(nvcc, source)
    rows = []
    for step in kernels:
        used = usage[f"{step.name}_kernel"]
        rows.append((step.name, used.registers, used.spills))
        assert used.spills == 0
    columns(rows, "kernel", "registers", "spilled bytes")


def show_roofline(kernels: list[Step], counted: dict[str, Traffic], gpu: Gpu) -> None:
    """Print the estimate of each kernel, and of the tile that the model chooses."""
    rows = []
    for step in kernels:
        milliseconds, bound = estimate(
            counted[step.name].global_read_bytes / PRODUCTS, step.tensor_cores, gpu
        )
        rows.append((step.name, f"{milliseconds:.2f}", bound))
    tile = choose_tile(LARGE, LARGE, LARGE, 1, gpu, MATRIX_TILES)
    large = tile.stage_bytes / (tile.rows * tile.columns * tile.depth)
    milliseconds, bound = estimate(large, True, gpu)
    text = f"the model's choice: {tile.rows} x {tile.columns} x {tile.depth}, {tile.stages} stages"
    rows.append((text, f"{milliseconds:.2f}", bound))
    columns(rows, "kernel", "ms", "bound by")
    assert float(rows[0][1]) > float(rows[1][1]) > float(rows[-1][1])
    print(
        "\n    A roofline knows no latency: two stages and four have the same one. Stages are there"
        "\n    so that copies of later tiles are in flight while the current one is multiplied."
    )


if __name__ == "__main__":
    main()
