"""Tutorial 1: compile an ONNX model, and look at it after every stage.

    python tutorials/01_compile_an_onnx_model.py [model.onnx]

Without an argument it compiles a small residual network made on the spot. Read it from top to
bottom: each step prints what it did. It is what `relaxc.compile` does, one step at a time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from stage_printing import show, title

from frontends.onnx import import_onnx
from relax_passes.build import build_executable
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import Pipeline, default_pipeline
from relaxc.random_inputs import random_inputs
from tir_schedules.machine import Machine, host_target


def small_residual_network() -> onnx.ModelProto:
    """Return conv-bn-relu, conv-bn, add, relu, global pooling, linear, softmax."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []

    def weight(name: str, array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array.astype("float32"), name))
        return name

    def conv(x: str, y: str, c_in: int, c_out: int) -> Iterator[onnx.NodeProto]:
        kernel = weight(f"{y}.kernel", rng.standard_normal((c_out, c_in, 3, 3)) * 0.2)
        yield helper.make_node("Conv", [x, kernel], [f"{y}.conv"], pads=[1, 1, 1, 1])
        scale = weight(f"{y}.scale", rng.uniform(0.5, 1.5, c_out))
        statistics = [
            weight(f"{y}.shift", rng.standard_normal(c_out) * 0.1),
            weight(f"{y}.mean", rng.standard_normal(c_out) * 0.1),
            weight(f"{y}.variance", rng.uniform(0.5, 1.5, c_out)),
        ]
        yield helper.make_node("BatchNormalization", [f"{y}.conv", scale, *statistics], [y])

    nodes = [
        *conv("image", "a", 3, 16),
        helper.make_node("Relu", ["a"], ["b"]),
        *conv("b", "c", 16, 16),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", weight("w", rng.standard_normal((16, 10)))], ["h"]),
        helper.make_node("Softmax", ["h"], ["probabilities"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small_residual_network",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, [1, 10])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def operator_counts(module: tvm.IRModule) -> str:
    """Return how often `main` uses each Relax operator."""
    counts = Counter(
        getattr(binding.value.op, "name", "a function").removeprefix("relax.")
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    )
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def busiest_kernel(module: tvm.IRModule) -> tuple[str, tvm.tirx.PrimFunc]:
    """Return the kernel with the longest text, a convolution with what is fused to it."""
    kernels = [
        (var.name_hint, function)
        for var, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    ]
    return max(kernels, key=lambda kernel: len(kernel[1].script()))


def arena_map(module: tvm.IRModule, columns: int = 72) -> str:
    """Draw the arena: offsets from left to right, calls from top to bottom, # where bytes live."""
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    places: dict[tvm.ir.Var, tuple[int, int]] = {}
    uses: dict[tvm.ir.Var, list[int]] = {}
    views: dict[tvm.ir.Var, tvm.ir.Var] = {}
    calls: list[str] = []
    size = 1
    for binding in bindings:
        call = binding.value
        name = getattr(getattr(call, "op", None), "name", "")
        if name == "relax.memory.alloc_storage":
            size = max(size, int(call.args[0].values[0]))
        elif name == "relax.memory.alloc_tensor":
            begin = int(call.args[1].value)
            shape, dtype = call.args[2].values, call.args[3].value
            count = int(np.prod([int(extent) for extent in shape], dtype=np.int64))
            places[binding.var] = (begin, begin + count * (tvm.DataType(dtype).bits // 8))
        elif isinstance(call, tvm.ir.Call):
            if name == "relax.reshape" and call.args[0] in {**places, **views}:
                views[binding.var] = views.get(call.args[0], call.args[0])
            if isinstance(call.op, tvm.ir.GlobalVar):
                for argument in call.args:
                    uses.setdefault(views.get(argument, argument), []).append(len(calls))
                calls.append(call.op.name_hint)
    rows = []
    for step, kernel in enumerate(calls):
        row = ["."] * columns
        for buffer, (begin, end) in places.items():
            if uses.get(buffer) and min(uses[buffer]) <= step <= max(uses[buffer]):
                first, last = begin * columns // size, max(-(-end * columns // size), 1)
                row[first:last] = "#" * (last - first)
        rows.append(f"{''.join(row)}  {step:3d} {kernel}")
    return f"{size:,} bytes, {len(places)} buffers\n" + "\n".join(rows)


def main() -> None:
    """Walk one model through all stages."""
    if len(sys.argv) > 1:
        proto = onnx.load(sys.argv[1])
    else:
        proto = small_residual_network()

    title("1. Import: ONNX nodes become Relax operators; weights are constants")
    imported = import_onnx(proto)
    print(f"inputs  {imported.inputs}\noutputs {imported.outputs}\n")
    show(imported.module["main"].script(show_meta=False))

    title("2. The phases of relax_passes/pipeline.py, one after the other")
    target = host_target()
    context = PassContext(
        target, Machine.from_target(target), threads=int(target.attrs["num-cores"])
    )
    after = {"import": imported.module}
    module = imported.module
    for phase, passes in default_pipeline().phases.items():
        notes = len(context.log.fired)
        module = after[phase] = Pipeline({phase: passes}).run(module, context)
        print(f"{phase:13s} {', '.join(p.name for p in passes) or '(nothing)'}")
        for name, what in context.log.fired[notes:][:4]:
            print(f"              - {name}: {what}")

    title("3. After `rewrite`: batch norms are folded into the convolutions")
    print(f"before: {operator_counts(after['import'])}")
    print(f"after:  {operator_counts(after['rewrite'])}")

    title("4. After `layout`: channels in blocks of one vector register, weights packed")
    show(after["layout"]["main"].script(show_meta=False))

    title("5. After `fuse`: one call per kernel, elementwise operators inside their producers")
    show(after["fuse"]["main"].script(show_meta=False))

    name, kernel = busiest_kernel(after["fuse"])
    title(f"6. One kernel before scheduling: {name}")
    show(kernel.script(), most=80)

    title(f"7. The same kernel after `schedule`: tiled, vectorized, unrolled, parallel: {name}")
    scheduled = {var.name_hint: function for var, function in after["schedule"].functions.items()}
    show(scheduled.get(name, busiest_kernel(after["schedule"])[1]).script(), most=120)

    title("8. After `memory`: every intermediate tensor is a range of one arena")
    print(arena_map(after["memory"]))

    title("9. Build, run, and compare with ONNX's reference implementation")
    executable = build_executable(module, context)
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    feeds = random_inputs(imported.inputs)
    result = machine["main"](*(tvm.runtime.tensor(array) for array in feeds.values()))
    ours = result if isinstance(result, tvm.runtime.Tensor) else result[0]
    named = dict(zip((i.name for i in proto.graph.input), feeds.values(), strict=False))
    expected = ReferenceEvaluator(proto).run(None, named)[0]
    error = np.abs(ours.numpy() - expected).max() / np.abs(expected).max()
    print(f"max abs error / max abs value: {error:.1e}")
    if not error <= 1e-4:
        sys.exit("the compiled model is wrong")


if __name__ == "__main__":
    main()
