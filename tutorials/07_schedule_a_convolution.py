"""Tutorial 7: one convolution from a naive loop nest to the limit of the processor, and beyond.

    python tutorials/07_schedule_a_convolution.py

A layer of ResNet (3x3, 64 to 64 channels, 28x28 pixels, bias and ReLU) is computed in six ways.
Each step changes one thing, is checked against the first, and prints its GFLOP/s and its share of
the multiply-add peak that is measured in the same run. Timings of a busy machine are noise: what
the steps assert is the structure of the loops and the numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from stage_printing import columns, show, title
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from benchmarks.machine_limits import best_seconds, fma_peak
from tir_schedules import Machine, host_target
from tir_schedules.llvm import conv2d_nchwc, winograd_rule
from tir_schedules.llvm.conv_algorithm import choose_winograd
from tir_schedules.llvm.conv_tile import ConvSizes, choose_conv_tile
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE
from tir_schedules.llvm.winograd_conv2d import transform_weight, winograd_conv2d
from tir_schedules.llvm.winograd_matrices import winograd

CHANNELS, SIZE = 64, 28
FLOPS = 2 * 9 * CHANNELS**2 * SIZE**2
TARGET = host_target(1)
MACHINE = Machine.from_target(TARGET)
LANES = MACHINE.lanes()
BLOCKS = CHANNELS // LANES


def naive() -> PrimFunc:
    """Return the layer in NCHW, as a textbook writes it."""
    x = te.placeholder((1, CHANNELS, SIZE, SIZE), name="x")
    w = te.placeholder((CHANNELS, CHANNELS, 3, 3), name="w")
    bias = te.placeholder((1, CHANNELS, 1, 1), name="bias")
    return te.create_prim_func([x, w, bias, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1) + bias)])


def blocked(convolution: Callable[[te.Tensor, te.Tensor], te.Tensor], w: te.Tensor) -> PrimFunc:
    """Return the layer in NCHW[x]c around a convolution."""
    x = te.placeholder((1, BLOCKS, SIZE, SIZE, LANES), name="x")
    bias = te.placeholder((1, BLOCKS, 1, 1, LANES), name="bias")
    return te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(convolution(x, w), bias))])


def direct() -> PrimFunc:
    """Return the layer in NCHW[x]c, its pixels padded to the register tile."""
    w = te.placeholder((BLOCKS, BLOCKS, 3, 3, LANES, LANES), name="w")
    return blocked(lambda x, k: conv2d_nchwc.conv2d_nchwc(x, k, MACHINE, padding=(1, 1, 1, 1)), w)


def vectorized(func: PrimFunc) -> PrimFunc:
    """Vectorize the lanes of the direct computation, and nothing else."""
    sch = Schedule(func)
    tiles = sch.get_sblock("conv2d_tiles")
    batch, block, pixel, lane, *reduction = sch.get_loops(tiles)
    sch.reorder(batch, block, pixel, *reduction, lane)
    sch.vectorize(lane)
    return sch.mod["main"]


def in_registers(func: PrimFunc) -> PrimFunc:
    """Also keep one vector of sums in a register over the whole reduction."""
    sch = Schedule(func)
    tiles = sch.get_sblock("conv2d_tiles")
    sch.compute_inline(sch.get_sblock("conv2d"))
    held = sch.cache_write(tiles, 0, "local")
    batch, block, pixel, lane, *reduction = sch.get_loops(tiles)
    sch.reorder(batch, block, pixel, *reduction, lane)
    sch.reverse_compute_at(held, pixel)
    sch.vectorize(sch.get_loops(held)[-1])
    sch.vectorize(lane)
    sch.unroll(reduction[-1])
    init = sch.decompose_reduction(tiles, reduction[0])
    sch.vectorize(sch.get_loops(init)[-1])
    return sch.mod["main"]


def gflops(func: PrimFunc, arrays: list[np.ndarray], out: np.ndarray) -> float:
    """Run a function, leave its result in `out`, and return the best rate in GFLOP/s."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    call = tvm.compile(module, target=TARGET, tir_pipeline=KERNEL_PIPELINE).jit()["main"]
    tensors = [tvm.runtime.tensor(array) for array in [*arrays, out]]
    seconds = best_seconds(lambda: call(*tensors), 10)
    out[...] = tensors[-1].numpy()
    return FLOPS / seconds / 1e9


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, CHANNELS, SIZE, SIZE)).astype("float32")
    w = (rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 24).astype("float32")
    bias = rng.standard_normal(CHANNELS).astype("float32")
    in_blocks = np.ascontiguousarray(
        x.reshape(1, BLOCKS, LANES, SIZE, SIZE).transpose(0, 1, 3, 4, 2)
    )
    shape = (BLOCKS, LANES, BLOCKS, LANES, 3, 3)
    packed = np.ascontiguousarray(w.reshape(shape).transpose(0, 2, 4, 5, 3, 1))
    bias_blocks = bias.reshape(1, BLOCKS, 1, 1, LANES)
    peak = fma_peak(TARGET)
    rows: list[list[str]] = []
    want = np.empty_like(x)

    def measure(name: str, func: PrimFunc, weight: np.ndarray) -> float:
        out = np.empty_like(in_blocks)
        rate = gflops(func, [in_blocks, weight, bias_blocks], out)
        plain = out.transpose(0, 1, 4, 2, 3).reshape(want.shape)
        error = float(np.abs(plain - want).max() / np.abs(want).max())
        assert error < 1e-5, f"{name}: error {error:.1e}"
        rows.append([name, f"{rate:.1f}", f"{rate / peak:.0%}", f"{error:.1e}"])
        return rate

    title("Step 1: the textbook's loops, NCHW, as TVM leaves them")
    rate = gflops(naive(), [x, w, bias.reshape(1, -1, 1, 1)], want)
    rows.append(["naive NCHW", f"{rate:.1f}", f"{rate / peak:.0%}", "-"])
    print(
        "Neighbours in memory are pixels, the sum runs over channels: nothing for a vector to do."
    )

    title("Step 2: channels in blocks of one vector register: NCHW[x]c")
    print(f"{LANES} lanes: x is {in_blocks.shape}, the weight {packed.shape}.")
    print("The innermost axis of data, weight and result is a vector now.")
    measure("blocked, vectors", vectorized(direct()), packed)

    title("Step 3: the sums stay in a register")
    print("The vector of sums was loaded and stored at each of the 576 steps. Held in local scope,")
    print("it is stored once. But each multiply-add waits four cycles for the one before it.")
    show(in_registers(direct()).script(), most=12)
    measure("sums in a register", in_registers(direct()), packed)

    title("Step 4: a register tile, as the rule conv2d_nchwc schedules it")
    sizes = ConvSizes(BLOCKS, LANES, SIZE**2, 9 * CHANNELS, 4 * CHANNELS * SIZE**2)
    tile = choose_conv_tile(sizes, MACHINE)
    print(f"The cost model picks {tile.blocks} blocks x {tile.pixels} pixels: independent sums")
    print(f"that use {tile.blocks + tile.pixels} loads for {tile.blocks * tile.pixels} products.")
    scheduled = conv2d_nchwc.RULE.apply(direct(), MACHINE).mod["main"]
    assert scheduled.script().count("T.unroll(") >= 2
    measure("register tile", scheduled, packed)

    title("Step 5: fewer multiplications: Winograd")
    size = (SIZE, SIZE)
    chosen = choose_winograd(1, CHANNELS, BLOCKS, LANES, size, MACHINE)
    assert chosen is not None, "many pixels, few weights: products dominate"
    for outputs in (2, 4):
        matrices = winograd(outputs)
        n, m = matrices.points, outputs
        print(f"F({m}, 3): {n}x{n} products for {m}x{m} results instead of {9 * m * m}", end="")
        print(f", rounding error about {matrices.error_growth:.1f} times the direct sum's")
        points = te.placeholder((n, n, BLOCKS, BLOCKS, LANES, LANES), name="points")
        func = blocked(lambda x, k: winograd_conv2d(x, k, MACHINE, padding=(1, 1, 1, 1)), points)
        scheduled = winograd_rule.RULE.apply(func, MACHINE).mod["main"]
        measure(f"Winograd F({m}, 3)", scheduled, transform_weight(packed, outputs))
    print(f"The cost model chooses F({chosen}, 3) here.")

    title("All steps: share of the multiply-add peak measured in this run")
    columns(rows, "step", "GFLOP/s", f"of {peak:.0f}", "error")
    print("\nWinograd's rate counts the products of the direct sum, so it may exceed the peak.")


if __name__ == "__main__":
    main()
