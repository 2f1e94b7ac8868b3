"""How close matrix products come to the FMA peak.

`python -m benchmarks.gemm_shapes [--threads 2] [--rounds 20]` builds each kernel as the schedule
phase does, checks its numbers against float64, and prints one table. Times are medians and minima
over rounds; the peak is measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te, topi
from tvm.target import Target
from tvm.tirx import PrimFunc

from benchmarks.machine_limits import fma_peak
from relaxc.thread_pool import use_threads
from tir_schedules import Machine, host_target, schedule_func
from tir_schedules.llvm.batch_matmul import batch_matmul
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE
from tir_schedules.llvm.matmul import matmul_packed, pack_weight, panel_width

PRODUCTS = [(128, 768, 768), (128, 768, 2304), (128, 768, 3072), (128, 3072, 768)]
PRODUCTS += [(197, 768, 768), (1, 768, 3072), (1024, 1024, 1024), (3136, 96, 384)]
ATTENTION = [(12, 128, 64, 128, True), (12, 128, 128, 64, False), (12, 197, 64, 197, True)]
_SECONDS_A_ROUND = 0.02
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Kernel:
    """One kernel to measure: its function, inputs, expected result and work."""

    name: str
    func: PrimFunc
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    flops: int


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _product(m: int, k: int, n: int, machine: Machine) -> Kernel:
    x, w, bias = _random(m, k), _random(k, n), _random(n)
    packed = pack_weight(w, machine)
    tensors = [
        te.placeholder(array.shape, name=name)
        for array, name in ((x, "x"), (packed, "packed"), (bias, "bias"))
    ]
    out = topi.add(matmul_packed(tensors[0], tensors[1], n), tensors[2])
    expected = x.astype("float64") @ w + bias
    func = te.create_prim_func([*tensors, out])
    return Kernel(f"matmul {m}x{k}x{n}", func, (x, packed, bias), expected, 2 * m * k * n)


def _attention(batch: int, m: int, k: int, n: int, transposed: bool, machine: Machine) -> Kernel:
    a, b = _random(batch, m, k), _random(batch, *((n, k) if transposed else (k, n)))
    left, right = te.placeholder(a.shape, name="a"), te.placeholder(b.shape, name="b")
    out = batch_matmul(left, right, False, transposed, panel=panel_width(n, machine))
    expected = a.astype("float64") @ (b.swapaxes(-1, -2) if transposed else b)
    func = te.create_prim_func([left, right, out])
    name = f"batch matmul {batch}x{m}x{k}x{n}"
    return Kernel(name, func, (a, b), expected, 2 * batch * m * k * n)


def compiled(func: PrimFunc, target: Target) -> Callable[..., None]:
    """Return the compiled function."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return tvm.compile(module, target=target, tir_pipeline=KERNEL_PIPELINE).jit()["main"]


def _times(call: Callable[[], None], rounds: int) -> list[float]:
    """Return seconds a call, one figure a round."""
    call()
    start = time.perf_counter()
    call()
    repeat = max(1, int(_SECONDS_A_ROUND / max(1e-7, time.perf_counter() - start)))
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        seconds.append((time.perf_counter() - start) / repeat)
    return seconds


def measure(kernel: Kernel, target: Target, machine: Machine, rounds: int) -> tuple[str, float]:
    """Return the rule that scheduled a kernel and its best time in seconds.

    Raises:
        AssertionError: If its result is off by more than 1e-4 of the largest value.
    """
    scheduled = schedule_func(kernel.func, target, machine)
    run = compiled(scheduled.func, target)
    inputs = [tvm.runtime.tensor(array) for array in kernel.inputs]
    out = tvm.runtime.tensor(np.full(kernel.expected.shape, np.nan, "float32"))
    seconds = _times(lambda: run(*inputs, out), rounds)
    error = np.abs(out.numpy() - kernel.expected).max() / np.abs(kernel.expected).max()
    if not error <= _TOLERANCE:  # also catches NaN
        raise AssertionError(f"{kernel.name}: error {error:.2e}")
    print(
        f"{kernel.name:28s} {scheduled.rule:12s} {error:9.1e} "
        f"{statistics.median(seconds) * 1e6:10.1f} {min(seconds) * 1e6:10.1f}",
        end="",
    )
    return scheduled.rule, min(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    use_threads(options.threads)
    target = host_target(options.threads)
    machine = Machine.from_target(target)
    peak = fma_peak(target, options.threads)
    print(f"{options.threads} threads, FMA peak {peak:.0f} GFLOP/s")
    print(
        f"{'kernel':28s} {'rule':12s} {'error':>9s} {'median us':>10s} {'best us':>10s}"
        f" {'GFLOP/s':>9s} {'of peak':>8s}"
    )
    kernels = [_product(*shape, machine) for shape in PRODUCTS]
    kernels += [_attention(*shape, machine) for shape in ATTENTION]
    for kernel in kernels:
        _, best = measure(kernel, target, machine, options.rounds)
        rate = kernel.flops / best / 1e9
        print(f" {rate:9.1f} {rate / peak:8.0%}")


if __name__ == "__main__":
    main()
