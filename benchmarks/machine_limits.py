"""The limits that kernels are measured against: multiply-adds and copied bytes a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tvm
from tvm import te
from tvm.target import Target

from tir_schedules import Machine


def best_seconds(call: Callable[[], object], runs: int) -> float:
    """Return the seconds of the fastest of `runs` calls."""
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def fma_peak(target: Target, threads: int = 1, runs: int = 60) -> float:
    """Return the multiply-add peak of `threads` cores in GFLOP/s, from chains held in registers.

    Runs are short, so that one of them finds the cores undisturbed.
    """
    lanes, chains, steps = Machine.from_target(target).lanes(), 12, 20_000
    chain = te.comm_reducer(lambda y, x: y * x + x, lambda dtype: te.const(1, dtype), name="chain")
    x = te.placeholder((threads, chains, lanes), name="x")
    k = te.reduce_axis((0, steps), name="k")
    y = te.compute(x.shape, lambda t, a, b: chain(x[t, a, b], axis=k), name="y")
    sch = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("y")
    out = sch.cache_write(block, 0, "local")
    thread, acc, lane, step = sch.get_loops(block)
    sch.reorder(thread, step, acc, lane)
    sch.parallel(thread)
    sch.reverse_compute_at(out, thread)
    sch.unroll(acc)
    sch.vectorize(lane)
    sch.decompose_reduction(block, step)
    func = sch.mod["main"].with_attr("global_symbol", "main")
    call = tvm.compile(tvm.IRModule({"main": func}), target=target).jit()["main"]
    shape = [int(d) for d in x.shape]
    arrays = [tvm.runtime.tensor(np.full(shape, 0.5, "float32")) for _ in range(2)]
    seconds = best_seconds(lambda: call(*arrays), runs)
    return 2 * threads * chains * lanes * steps / seconds / 1e9


def copy_bandwidth(threads: int = 1) -> float:
    """Return the GB/s, read and written, at which `threads` cores copy arrays of 4 MB."""
    source = np.ones(1 << 20, "float32")
    target = np.empty_like(source)
    return threads * 2 * source.nbytes / best_seconds(lambda: np.copyto(target, source), 50) / 1e9
