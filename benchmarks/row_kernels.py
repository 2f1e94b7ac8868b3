"""Softmax, norms and GELU against copy bandwidth, torch and ONNX Runtime.

`python -m benchmarks.row_kernels [--threads 2] [--rounds 20] [--results FILE]` measures each
kernel as the schedule phase builds it, from tensors in cache to tensors far out of it, and checks
its numbers against float64. The engines take turns in every round, and write into buffers that
exist; times are minima over rounds. The copy is our own kernel, in the same rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import tvm
from onnx import helper
from tvm import te, tirx, topi
from tvm.target import Target

from benchmarks.gemm_shapes import compiled
from benchmarks.markdown_table import table_line, table_lines
from benchmarks.turns import CLOCKS, take_turns
from relaxc.thread_pool import use_threads
from tir_schedules import host_target, schedule_func
from tir_schedules.softmax import softmax

SHAPES = ((128, 768), (1024, 768), (1024, 1024), (2048, 2048), (4096, 4096))
EPSILON = 1e-5
_TOLERANCE = 1e-5
_HEADER = (
    "rows", "columns", "kernel", "us", "GB/s", "of copy", "torch us", "ratio", "ORT us", "ratio",
    "error",
)  # fmt: skip


@dataclass(frozen=True)
class RowKernel:
    """One kernel in three engines.

    Attributes:
        name: How the table calls it.
        vectors: How many operands of one row's length it has, a scale and a shift.
        compute: The TE computation of the operands.
        torch: The function of torch that takes the operands and a result to write.
        node: The ONNX operator and its attributes.
        reference: What it gives, in float64.
    """

    name: str
    vectors: int
    compute: Callable[..., te.Tensor]
    torch: Callable[..., object]
    node: tuple[str, dict[str, float]]
    reference: Callable[..., np.ndarray]


def _gelu(x: te.Tensor) -> te.Tensor:
    half = tirx.const(0.5, "float32")

    def element(i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        return x[i, j] * (half + half * tirx.erf(x[i, j] * 0.70710678))

    return te.compute(x.shape, element, name="gelu")


def _exact_softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _exact_layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON) * scale + shift


def _exact_rms_norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(1, keepdims=True) + EPSILON) * scale


def _torch_layer_norm(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, out: torch.Tensor
) -> None:
    moments = x.new_empty(x.shape[0], 1), x.new_empty(x.shape[0], 1)
    torch.ops.aten.native_layer_norm.out(
        x, [x.shape[1]], scale, shift, EPSILON, out0=out, out1=moments[0], out2=moments[1]
    )


KERNELS = (
    RowKernel(
        "softmax",
        0,
        lambda x: softmax(x, 1),
        lambda x, out: torch.softmax(x, 1, out=out),
        ("Softmax", {}),
        _exact_softmax,
    ),
    RowKernel(
        "layer norm",
        2,
        lambda x, scale, shift: topi.nn.layer_norm(x, scale, shift, [1], EPSILON),
        _torch_layer_norm,
        ("LayerNormalization", {"epsilon": EPSILON}),
        _exact_layer_norm,
    ),
    RowKernel(
        "RMS norm",
        1,
        lambda x, scale: topi.nn.rms_norm(x, scale, [1], EPSILON),
        lambda x, scale, out: out.copy_(torch.nn.functional.rms_norm(x, x.shape[1:], scale)),
        ("RMSNormalization", {"epsilon": EPSILON}),
        _exact_rms_norm,
    ),
    RowKernel(
        "GELU",
        0,
        _gelu,
        lambda x, out: torch.ops.aten.gelu.out(x, approximate="none", out=out),
        ("Gelu", {}),
        lambda x: x * 0.5 * (1 + np.vectorize(erf)(x / 2**0.5)),
    ),
)


def measure(
    kernel: RowKernel, shape: tuple[int, int], target: Target, threads: int, rounds: int, clock: str
) -> list[str]:
    """Return the row of the table for one kernel at one size.

    Raises:
        AssertionError: If the result is off by more than 1e-5 of the largest value.
    """
    rng = np.random.default_rng(shape[0])
    sizes = [shape, *[shape[1:]] * kernel.vectors]
    arrays = [rng.standard_normal(size).astype("float32") for size in sizes]
    out = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    inputs = [tvm.runtime.tensor(array) for array in arrays]
    ours, copy = (_built(compute, sizes, target) for compute in (kernel.compute, _copy))
    copied = tvm.runtime.tensor(np.empty(shape, "float32"))
    theirs, result = [torch.from_numpy(a) for a in arrays], torch.empty(shape)
    session = _session(kernel, arrays, threads)
    calls = [
        lambda: ours(*inputs, out),
        lambda: kernel.torch(*theirs, out=result),
        session,
        lambda: copy(*inputs, copied),
    ]
    times = [min(seconds) for seconds in take_turns(calls, rounds, CLOCKS[clock])]
    rows = min(shape[0], 128)  # enough for the check: the reference is slow
    wide = [arrays[0][:rows].astype("float64"), *(a.astype("float64") for a in arrays[1:])]
    expected = kernel.reference(*wide)
    error = float(np.abs(out.numpy()[:rows] - expected).max() / np.abs(expected).max())
    if not error <= _TOLERANCE:  # also catches NaN
        raise AssertionError(f"{kernel.name} of {shape}: error {error:.2e}")
    mine, torch_time, ort_time, copy_time = times
    return [
        str(shape[0]),
        str(shape[1]),
        kernel.name,
        f"{mine * 1e6:.0f}",
        f"{2 * arrays[0].nbytes / mine / 1e9:.1f}",
        f"{copy_time / mine:.0%}",
        f"{torch_time * 1e6:.0f}",
        f"{mine / torch_time:.2f}",
        f"{ort_time * 1e6:.0f}",
        f"{mine / ort_time:.2f}",
        f"{error:.0e}",
    ]


def _copy(x: te.Tensor, *_: te.Tensor) -> te.Tensor:
    return topi.identity(x)


def _built(
    compute: Callable[..., te.Tensor], sizes: Sequence[tuple[int, ...]], target: Target
) -> Callable[..., None]:
    tensors = [te.placeholder(size, name=f"x{at}") for at, size in enumerate(sizes)]
    func = te.create_prim_func([*tensors, compute(*tensors)])
    return compiled(schedule_func(func, target).func, target)


def _session(kernel: RowKernel, arrays: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
    """Return a call of ONNX Runtime on bound inputs and a bound output."""
    names = [f"x{at}" for at in range(len(arrays))]
    operator, attributes = kernel.node
    kind = onnx.TensorProto.FLOAT
    values = [
        helper.make_tensor_value_info(name, kind, array.shape)
        for name, array in zip([*names, "y"], [*arrays, arrays[0]], strict=True)
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    graph = helper.make_graph([node], "row", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, array in zip(names, arrays, strict=True):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    out = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(arrays[0]))
    binding.bind_ortvalue_output("y", out)
    return lambda: session.run_with_iobinding(binding)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--results", type=Path, help="a Markdown file to write the table to")
    options = parser.parse_args(arguments)
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu sees one thread only")
    use_threads(options.threads)
    torch.set_num_threads(options.threads)
    target = host_target(options.threads)
    rows = []
    for shape in SHAPES:
        for kernel in KERNELS:
            row = measure(kernel, shape, target, options.threads, options.rounds, options.clock)
            rows.append(row)
            print(table_line(row), flush=True)
    table = "\n".join(table_lines(_HEADER, rows))
    text = (
        f"float32, {options.threads} threads, {options.clock} clock, best of {options.rounds} "
        f"rounds; torch {torch.__version__.split('+')[0]}, ONNX Runtime "
        f"{onnxruntime.__version__}. A ratio below 1: ours is faster.\n\n{table}\n"
    )
    if options.results:
        options.results.write_text(f"# Row kernels on a CPU\n\n{text}")


if __name__ == "__main__":
    main()
