"""Run kernels and models on the emulated device, in a process of their own.

    python -m tests.cuda.emulated_process

The device must be there before tvm is imported. Prints a line of JSON for each run: what ran, and
its largest error relative to the largest expected value. A fault that the emulator finds ends the
process with its message.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda.emulator.install import RUNTIME, install

SEED = 0


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu_of_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x + y) / (1 + np.exp(-(x + y)))


Emit = Callable[..., Any]
Kernel = tuple[Emit, Callable[..., np.ndarray], list[tuple[int, ...]], str]
# What is emitted, what it computes, the shapes of its inputs, and the rule that schedules it.
KERNELS: dict[str, Kernel] = {
    "elementwise": (
        lambda op, x, y: op.nn.silu(op.add(x, y)),
        silu_of_sum,
        [(3, 37, 28), (37, 1)],
        "elementwise",
    ),
    "elementwise_odd": (
        lambda op, x, y: op.nn.silu(op.add(x, y)),
        silu_of_sum,
        [(5, 7, 13), (13,)],
        "elementwise",
    ),
    "softmax": (lambda op, x: op.nn.softmax(x), softmax, [(3, 1000)], "row_kernel"),
    "softmax_short": (lambda op, x: op.nn.softmax(x), softmax, [(3, 5, 67)], "register_rows"),
    "softmax_of_columns": (
        lambda op, x: op.nn.softmax(x, axis=0),
        lambda x: softmax(x.T).T,
        [(64, 64)],
        "column_kernel",
    ),
    "matmul": (lambda op, x, y: op.matmul(x, y), np.matmul, [(70, 45), (45, 131)], "contraction"),
    "matmul_batch": (
        lambda op, x, y: op.matmul(x, y),
        np.matmul,
        [(2, 3, 65, 32), (2, 3, 32, 17)],
        "contraction",
    ),
    "matmul_one_row": (
        lambda op, x, y: op.matmul(x, y),
        np.matmul,
        [(1, 64), (64, 300)],
        "contraction",
    ),
}
# Rules that would take the kernels of others.
BEFORE = {"row_kernel": ["register_rows"], "contraction": ["few_rows", "cuda_core_matmul"]}
MODELS = (
    *("bert_layer", "bert_layer_float16", "residual_block", "residual_block_float16"),
    "deep_product_float16",
)


def error(result: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error relative to the largest expected value."""
    difference = np.abs(result.astype("float64") - expected)
    return float(difference.max() / np.abs(expected).max())


def run_kernels() -> None:
    """Compile all kernels at once, and run each with the first and with the last thread first."""
    import tvm
    from tvm import relax

    from tests.cuda.fused_function import fused_function
    from tests.cuda.ptxas import SM_80
    from tir_schedules import schedule_func

    functions = {}
    for name, (emit, _, shapes, rule) in KERNELS.items():
        func = fused_function(lambda *x: emit(relax.op, *x), shapes)  # noqa: B023
        scheduled = schedule_func(func, SM_80, without=BEFORE.get(rule, ()))
        assert scheduled.rule == rule, (name, scheduled.declined)
        functions[name] = scheduled.func.with_attr("global_symbol", name)
    module = tvm.compile(tvm.IRModule(functions), target=SM_80)
    device, random = tvm.cuda(0), np.random.default_rng(SEED)
    for name, (_, expected, shapes, _) in KERNELS.items():
        inputs = [random.standard_normal(shape, dtype="float32") for shape in shapes]
        want = expected(*[x.astype("float64") for x in inputs])
        for order in ("fwd", "rev"):
            os.environ["EMULATOR_ORDER"] = order
            arrays = [tvm.runtime.tensor(x, device) for x in inputs]
            arrays.append(tvm.runtime.tensor(np.full(want.shape, np.nan, "float32"), device))
            module[name](*arrays)
            report(name, order, error(arrays[-1].numpy(), want))


def run_models() -> None:
    """Run each model on the device and compare it with the processor's result."""
    import relaxc
    from tests.cuda import models
    from tests.cuda.ptxas import SM_80_OPTIONS

    random = np.random.default_rng(SEED)
    for name in MODELS:
        dtype = "float16" if name.endswith("_float16") else "float32"
        module = getattr(models, f"small_{name.removesuffix('_float16')}")(dtype)
        (shape,) = [tuple(int(d) for d in p.ty.shape) for p in module["main"].params]
        on_processor = relaxc.compile(module)
        emulated = relaxc.compile(module, target=SM_80_OPTIONS)
        rules = sorted({kernel["rule"] for kernel in emulated.report.kernels})
        before, errors = graph_launches(), []
        for _ in range(2):  # the second run records what it launches as graphs
            x = random.standard_normal(shape).astype(dtype)
            want = np.asarray(on_processor(x)).astype("float64")
            errors.append(error(np.asarray(emulated(x)), want))
        graphs = graph_launches() - before
        fired = [name for name, _ in emulated.report.fired]
        report(name, "fwd", max(errors), rules=rules, graphs=graphs, fired=fired)


def run_quantized() -> None:
    """Run the quantized network on the device: its bytes are those of the processor."""
    import relaxc
    from tests.cuda.ptxas import SM_80_OPTIONS
    from tests.cuda.quantized_models import IMAGE, quantized_network

    model = quantized_network()
    emulated = relaxc.compile(model, target=SM_80_OPTIONS)
    x = np.random.default_rng(SEED).integers(0, 256, IMAGE).astype("uint8")
    want, got = np.asarray(relaxc.compile(model)(x)), np.asarray(emulated(x))
    kernels = [(kernel["rule"], kernel["calls"]) for kernel in emulated.report.kernels]
    report(
        "quantized", "fwd", error(got, want.astype("float64")), kernels=kernels,
        distinct=len(np.unique(want)),
    )  # fmt: skip


def graph_launches() -> int:
    """Return how many CUDA graphs this process has launched."""
    return int(ctypes.CDLL(RUNTIME).emulator_graph_launches())


def report(name: str, order: str, found: float, **more: Any) -> None:
    line = {"name": name, "order": order, "error": found, **more}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    install()
    os.environ["EMULATOR_CHECKED"] = "1"
    run_kernels()
    del os.environ["EMULATOR_CHECKED"]  # a whole model is slow to check
    os.environ["EMULATOR_ORDER"] = "fwd"
    run_models()
    run_quantized()
