"""Measure convolution kernels layer by layer: `python -m benchmarks.conv_layers`.

Prints GFLOP/s, the share of this machine's measured FMA peak, and for depthwise layers the share
of copy bandwidth. The GFLOP/s of a Winograd layer are those of the direct sum it saves: they may
exceed the peak. Each row is checked against ONNX Runtime in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te, topi
from tvm.target import Target

from benchmarks.machine_limits import best_seconds, copy_bandwidth, fma_peak
from relaxc.thread_pool import use_threads
from tir_schedules import Machine, host_target
from tir_schedules.llvm import conv2d_nchwc, depthwise_conv2d, winograd_rule
from tir_schedules.llvm.conv_algorithm import choose_winograd
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE
from tir_schedules.llvm.winograd_conv2d import transform_weight, winograd_conv2d

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


def _winograd(layer: Layer, machine: Machine) -> int | None:
    """Return m of the Winograd F(m, 3) that the cost model picks for a layer, if it picks one."""
    blocked = layer.inputs % machine.lanes() == layer.outputs % machine.lanes() == 0
    if layer.depthwise or (layer.kernel, layer.stride) != (3, 1) or not blocked:
        return None
    blocks, size = layer.outputs // machine.lanes(), (layer.out_size, layer.out_size)
    return choose_winograd(1, layer.inputs, blocks, machine.lanes(), size, machine)


def _kernel(
    layer: Layer, target: Target, outputs: int | None
) -> tuple[Callable[..., None], float, float]:
    """Return the compiled layer, and the seconds its scheduling and compilation took."""
    machine = Machine.from_target(target)
    lanes = machine.lanes()
    ib, ob = (lanes if c % lanes == 0 else c for c in (layer.inputs, layer.outputs))
    x = te.placeholder((1, layer.inputs // ib, layer.size, layer.size, ib), name="x")
    bias = te.placeholder((1, layer.outputs // ob, 1, 1, ob), name="bias")
    blocks = (layer.outputs // ob, layer.inputs // ib)
    window, padding = (layer.kernel, layer.kernel), (layer.padding,) * 4
    strides = (layer.stride, layer.stride)
    if layer.depthwise:
        w = te.placeholder((blocks[0], 1, *window, 1, ob), name="w")
        rule = depthwise_conv2d.RULE
        y = depthwise_conv2d.depthwise_conv2d_nchwc(x, w, strides=strides, padding=padding)
    elif outputs is not None:
        w = te.placeholder((outputs + 2, outputs + 2, *blocks, ib, ob), name="w")
        rule = winograd_rule.RULE
        y = winograd_conv2d(x, w, machine, padding=padding)
    else:
        w = te.placeholder((*blocks, *window, ib, ob), name="w")
        rule = conv2d_nchwc.RULE
        y = conv2d_nchwc.conv2d_nchwc(x, w, machine, strides=strides, padding=padding)
    func = te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(y, bias))])
    begin = time.perf_counter()
    scheduled = rule.apply(func, machine).mod["main"]
    middle = time.perf_counter()
    named = scheduled.with_attr("global_symbol", "main")
    library = tvm.compile(
        tvm.IRModule({"main": named}), target=target, tir_pipeline=KERNEL_PIPELINE
    )
    end = time.perf_counter()
    return library.jit()["main"], middle - begin, end - middle


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


def _measure(
    layer: Layer, target: Target, outputs: int | None, runs: int
) -> tuple[float, float, float]:
    """Return seconds of a run, of scheduling and of compilation; check the numbers."""
    call, schedule, compilation = _kernel(layer, target, outputs)
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
    if outputs is not None:
        packed = transform_weight(packed, outputs)
    blocked = x.reshape(1, -1, ib, size, size).transpose(0, 1, 3, 4, 2)
    out = np.full((1, layer.outputs // ob, layer.out_size, layer.out_size, ob), np.nan, "float32")
    arrays = [blocked, packed, bias.reshape(1, -1, 1, 1, ob), out]
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    seconds = best_seconds(lambda: call(*tensors), runs)
    got = tensors[-1].numpy().transpose(0, 1, 4, 2, 3).reshape(1, layer.outputs, *out.shape[2:4])
    want = _reference(layer, x, w, bias)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    if not error <= _TOLERANCE:
        raise SystemExit(f"{layer}: relative error {error:.2e}")
    return seconds, schedule, compilation


def main() -> None:
    """Print one line a layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    use_threads(options.threads)
    target = host_target(options.threads)
    machine = Machine.from_target(target)
    peak, copy = fma_peak(target, options.threads), copy_bandwidth(options.threads)
    print(f"FMA peak {peak:.0f} GFLOP/s, copy {copy:.0f} GB/s, {options.threads} threads")
    print("| model | layer | algorithm | us | GFLOP/s, of peak | GB/s, of copy | compile ms |")
    print("|---|---|---|---|---|---|---|")
    for layer in [*_resnet50(), *_mobilenet_v2()]:
        outputs = _winograd(layer, machine)
        seconds, schedule, compilation = _measure(layer, target, outputs, options.runs)
        rate, moved = layer.flops / seconds / 1e9, layer.bytes / seconds / 1e9
        algorithm = "direct" if outputs is None else f"F({outputs}, 3)"
        kind = "depthwise" if layer.depthwise else f"-> {layer.outputs}"
        shape = f"{layer.size}x{layer.size} k{layer.kernel} s{layer.stride}"
        print(
            f"| {layer.model} | {layer.inputs} {kind} {shape} | {algorithm} | {seconds * 1e6:.0f} "
            f"| {rate:.0f}, {rate / peak:.0%} | {moved:.1f}, {moved / copy:.0%} "
            f"| {schedule * 1e3:.0f} + {compilation * 1e3:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
