"""Measure convolution kernels layer by layer: `python -m benchmarks.conv_layers`.

Prints GFLOP/s, the share of this machine's measured FMA peak, and for depthwise layers the share
of copy bandwidth. Each row is checked against ONNX Runtime in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tvm
from tvm import te, topi
from tvm.target import Target

from relaxc.thread_pool import use_threads
from tir_schedules import Machine, host_target
from tir_schedules.llvm import conv2d_nchwc, depthwise_conv2d
from tir_schedules.llvm.vector_math import lower_math

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Layer:
    """A convolution with bias and ReLU; `depthwise` when every channel is alone."""

    model: str
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    depthwise: bool = False

    @property
    def padding(self) -> int:
        """Return the border on each side."""
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        """Return rows (and columns) of the result."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        """Return floating-point operations, a multiply-add as two."""
        inputs = 1 if self.depthwise else self.inputs
        return 2 * inputs * self.outputs * self.out_size**2 * self.kernel**2

    @property
    def bytes(self) -> int:
        """Return bytes of input and output."""
        return 4 * (self.inputs * self.size**2 + self.outputs * self.out_size**2)


def _resnet50() -> list[Layer]:
    layers = [Layer("ResNet-50", 3, 64, 224, 7, 2)]
    size, inputs = 56, 64
    for stage, mid in enumerate((64, 128, 256, 512)):
        stride = 1 if stage == 0 else 2
        layers += [
            Layer("ResNet-50", inputs, mid, size, 1),
            Layer("ResNet-50", mid, mid, size, 3, stride),
            Layer("ResNet-50", inputs, 4 * mid, size, 1, stride),
        ]
        size, inputs = size // stride, 4 * mid
        layers += [
            Layer("ResNet-50", mid, inputs, size, 1),
            Layer("ResNet-50", inputs, mid, size, 1),
            Layer("ResNet-50", mid, mid, size, 3),
        ]
    return list(dict.fromkeys(layers))


def _mobilenet_v2() -> list[Layer]:
    rows = [(32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2)]
    rows += [(384, 14, 1), (576, 14, 1), (576, 14, 2), (960, 7, 1)]
    depthwise = [Layer("MobileNetV2", c, c, s, 3, stride, True) for c, s, stride in rows]
    pointwise = [(32, 16, 112), (16, 96, 112), (24, 144, 56), (144, 24, 56), (192, 32, 28)]
    pointwise += [(384, 64, 14), (576, 96, 14), (960, 160, 7), (320, 1280, 7)]
    return depthwise + [Layer("MobileNetV2", i, o, s, 1) for i, o, s in pointwise]


def _kernel(layer: Layer, target: Target) -> tuple[Callable[..., None], float, float]:
    """Return the compiled layer, and the seconds its scheduling and compilation took."""
    lanes = Machine.from_target(target).lanes()
    ib, ob = (lanes if c % lanes == 0 else c for c in (layer.inputs, layer.outputs))
    x = te.placeholder((1, layer.inputs // ib, layer.size, layer.size, ib), name="x")
    bias = te.placeholder((1, layer.outputs // ob, 1, 1, ob), name="bias")
    module = depthwise_conv2d if layer.depthwise else conv2d_nchwc
    shape = (layer.outputs // ob, layer.inputs // ib, layer.kernel, layer.kernel, ib, ob)
    if layer.depthwise:
        shape = (shape[0], 1, layer.kernel, layer.kernel, 1, ob)
    w = te.placeholder(shape, name="w")
    compute = (
        depthwise_conv2d.depthwise_conv2d_nchwc
        if layer.depthwise
        else partial(conv2d_nchwc.conv2d_nchwc, machine=Machine.from_target(target))
    )
    y = compute(x, w, strides=(layer.stride,) * 2, padding=(layer.padding,) * 4)
    func = te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(y, bias))])
    begin = time.perf_counter()
    scheduled = module.RULE.apply(func, Machine.from_target(target)).mod["main"]
    middle = time.perf_counter()
    named = lower_math(scheduled).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": named}), target=target)
    end = time.perf_counter()
    return library.jit()["main"], middle - begin, end - middle


def _best_seconds(call: Callable[[], object], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def _reference(layer: Layer, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Run the layer in ONNX Runtime."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    group = layer.inputs if layer.depthwise else 1
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w", "b"],
            ["c"],
            strides=[layer.stride] * 2,
            pads=[layer.padding] * 4,
            group=group,
        ),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


def _measure(layer: Layer, target: Target, runs: int) -> tuple[float, float, float]:
    """Return seconds of a run, of scheduling and of compilation; check the numbers."""
    call, schedule, compilation = _kernel(layer, target)
    rng = np.random.default_rng(0)
    lanes = Machine.from_target(target).lanes()
    ib, ob = (lanes if c % lanes == 0 else c for c in (layer.inputs, layer.outputs))
    size, k = layer.size, layer.kernel
    x = rng.standard_normal((1, layer.inputs, size, size)).astype("float32")
    per_group = 1 if layer.depthwise else layer.inputs
    w = rng.standard_normal((layer.outputs, per_group, k, k)).astype("float32")
    bias = rng.standard_normal(layer.outputs).astype("float32")
    wb = 1 if layer.depthwise else ib
    packed = w.reshape(-1, ob, per_group // wb, wb, k, k).transpose(0, 2, 4, 5, 3, 1)
    blocked = x.reshape(1, -1, ib, size, size).transpose(0, 1, 3, 4, 2)
    out = np.full((1, layer.outputs // ob, layer.out_size, layer.out_size, ob), np.nan, "float32")
    arrays = [blocked, packed, bias.reshape(1, -1, 1, 1, ob), out]
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    seconds = _best_seconds(lambda: call(*tensors), runs)
    got = tensors[-1].numpy().transpose(0, 1, 4, 2, 3).reshape(1, layer.outputs, *out.shape[2:4])
    want = _reference(layer, x, w, bias)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    if not error <= _TOLERANCE:
        raise SystemExit(f"{layer}: relative error {error:.2e}")
    return seconds, schedule, compilation


def _peak_gflops(target: Target, threads: int) -> float:
    """Measure FMA throughput: eight chains y = y * x + x in registers, no memory in the loop."""
    lanes, chains, steps = Machine.from_target(target).lanes(), 8, 200_000
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
    seconds = _best_seconds(lambda: call(*arrays), 10)
    return 2 * threads * chains * lanes * steps / seconds / 1e9


def _copy_gigabytes(threads: int) -> float:
    """Measure copy bandwidth of a 4 MB array, bytes read and written."""
    source = np.ones(1 << 20, "float32")
    target = np.empty_like(source)
    return threads * 2 * source.nbytes / _best_seconds(lambda: np.copyto(target, source), 50) / 1e9


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    use_threads(options.threads)
    target = host_target(options.threads)
    peak, copy = _peak_gflops(target, options.threads), _copy_gigabytes(options.threads)
    print(f"FMA peak {peak:.0f} GFLOP/s, copy {copy:.0f} GB/s, {options.threads} threads")
    print("| model | layer | us | GFLOP/s | of peak | GB/s | of copy | schedule, compile ms |")
    print("|---|---|---|---|---|---|---|---|")
    for layer in [*_resnet50(), *_mobilenet_v2()]:
        seconds, schedule, compilation = _measure(layer, target, options.runs)
        rate, moved = layer.flops / seconds / 1e9, layer.bytes / seconds / 1e9
        kind = "depthwise" if layer.depthwise else f"-> {layer.outputs}"
        print(
            f"| {layer.model} | {layer.inputs} {kind} "
            f"{layer.size}x{layer.size} k{layer.kernel} s{layer.stride} | {seconds * 1e6:.0f} "
            f"| {rate:.0f} | {rate / peak:.0%} | {moved:.1f} | {moved / copy:.0%} "
            f"| {schedule * 1e3:.0f}, {compilation * 1e3:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
