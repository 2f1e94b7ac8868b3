"""Tutorial 11: a Tensor Core kernel that is compiled, run, counted and broken without a GPU.

    python tutorials/11_cuda_without_a_gpu.py

A product of float16 matrices with a bias and a ReLU is scheduled for sm_80. Its CUDA C is shown,
read by ptxas where there is one, and run by the emulator of `tests/cuda/emulator`, which executes
the generated code on the processor, inline PTX included. Then the kernel is broken in four ways;
each time the emulator says what is wrong.
"""

from __future__ import annotations

import re

from stage_printing import columns, title

from tests.cuda.emulate import launch_grid
from tests.cuda.emulator.launch import Fault
from tests.cuda.kernel_set import Kernels
from tests.cuda.products import matmul
from tests.cuda.ptxas import SM_80, cuda_source, find_tool, kernel_usage
from tests.cuda.static_counts import count_instructions
from tir_schedules import Machine, schedule_func
from tir_schedules.cuda.tile_choice import MATRIX_TILES, choose_tile

SMALL, LARGE = matmul(64, 64, 128), matmul(4096, 4096, 4096)
BROKEN = {
    "no_barrier": ("__syncthreads();", ";", 0),
    "no_wait": ("tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();", ";", 0),
    "no_warp_sync": ("tvm_builtin_cuda_warp_sync();", ";", 0),
    "an_index_too_far": ("(&(a_ptr[(", "(&(a_ptr[8192 + (", 0),
}


def main() -> None:
    """Print every step."""
    title("1: schedule. The first rule that does not decline takes the function")
    scheduled = schedule_func(SMALL.func, SM_80)
    for rule, reason in scheduled.declined:
        print(f"    {rule} declined: {reason}")
    grid = launch_grid(scheduled.func)
    print(
        f"    {scheduled.rule} took it: {grid.blocks[0]} blocks of {grid.threads[0]} threads, "
        f"{grid.dynamic_shared} bytes of shared memory each"
    )
    assert scheduled.rule == "tensor_core_matmul"

    title("2: generate CUDA C. The instructions that make it fast are inline PTX")
    source = cuda_source({"product": scheduled.func})
    for name in sorted(set(re.findall(r'asm volatile\("([\w.:]+)', source))):
        print(f"    {name}")

    title("3: ask ptxas for registers, spills and what the large product would need")
    show_large(*large_kernel())

    title("4: run it. One fiber a CUDA thread; all accesses are seen")
    kernels = Kernels({"product": scheduled.func}, source).with_broken("product", BROKEN)
    inputs, result = SMALL.inputs(), SMALL.empty()
    traffic = kernels.run("product", SMALL)
    operands = sum(x.nbytes for x in inputs)
    print(f"    the numbers agree with NumPy: {len(inputs)} inputs of {operands} bytes")
    names = [name for name, _ in traffic._fields_]
    columns([(name, getattr(traffic, name)) for name in names], "counted", "in one launch")
    assert traffic.bank_conflicts == 0
    assert traffic.matrix_instructions == 64 * 64 * 128 // (16 * 8 * 16)
    assert traffic.global_written_bytes == result.nbytes

    title("5: break it. What the emulator finds")
    found = []
    for name in BROKEN:
        try:
            kernels.run("product", SMALL, kernel=name)
        except Fault as fault:
            found.append((name.replace("_", " "), str(fault).removeprefix("emulator: ")))
    columns(found, "what was broken", "what was found")
    assert len(found) == len(BROKEN)


def large_kernel() -> tuple[str, object]:
    """Return the CUDA C of the product of 4096 x 4096 matrices, and its function."""
    scheduled = schedule_func(LARGE.func, SM_80)
    return cuda_source({"large": scheduled.func}), scheduled.func


def show_large(source: str, func: object) -> None:
    """Print what is known of the large product without running it."""
    gpu = Machine.from_target(SM_80).gpu
    assert gpu is not None
    n = 4096
    tile = choose_tile(n, n, n, 1, gpu, MATRIX_TILES)
    counts = count_instructions(func)
    minimum = 2 * n**3 * (tile.rows + tile.columns) // (tile.rows * tile.columns)
    lines = [
        ("tile", f"{tile.rows} x {tile.columns} x {tile.depth}, {tile.stages} stages"),
        ("shared memory", f"{tile.shared_bytes} of {gpu.block_shared_bytes} bytes"),
        ("mma instructions", f"{counts['mma'] // 32}, the fewest: {n**3 // (16 * 8 * 16)}"),
        ("bytes copied", f"{16 * counts['cp_async_cg']}, those of the tiles: {minimum}"),
    ]
    nvcc = find_tool("nvcc")
    if nvcc is not None:
        usage = kernel_usage(nvcc, source)["large_kernel"]
        together = gpu.blocks_together(tile.threads, usage.registers, tile.shared_bytes)
        lines += [
            ("registers", f"{usage.registers}, spilled bytes: {usage.spills}"),
            ("blocks on a multiprocessor", f"{together} of {tile.threads} threads"),
        ]
        assert usage.spills == 0
    else:
        lines.append(("registers", "no nvcc here: pip install relaxc[cuda] brings one"))
    columns(lines, f"{n}^3", "")
    assert counts["mma"] // 32 == n**3 // (16 * 8 * 16)


if __name__ == "__main__":
    main()
