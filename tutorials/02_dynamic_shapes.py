"""Tutorial 2: sizes that are known only when the model runs, followed through every stage.

    python tutorials/02_dynamic_shapes.py

A small text classifier takes any batch and any length. Read it from top to bottom: each step prints
what became of the names `batch` and `length`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from stage_printing import show, title
from tvm import tirx

import relaxc
from frontends.onnx import import_onnx
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tir_schedules.machine import Machine, host_target

WIDTH, HEADS, CLASSES = 32, 4, 5


def classifier() -> onnx.ModelProto:
    """Return attention over `length`, the mean over it, a linear layer and a softmax.

    The reshape into heads asks for the sizes the way exporters write it: Shape, Gather, Concat.
    """
    rng = np.random.default_rng(0)
    arrays = {
        "wq": rng.standard_normal((WIDTH, WIDTH)) * 0.2,
        "wc": rng.standard_normal((WIDTH, CLASSES)) * 0.2,
        "scale": np.asarray((WIDTH / HEADS) ** -0.5),
    }
    weights = [numpy_helper.from_array(a.astype("float32"), name) for name, a in arrays.items()]
    integers = {"zero": [0], "one": [1], "heads": [HEADS, WIDTH // HEADS], "width": [WIDTH]}
    weights += [numpy_helper.from_array(np.asarray(v), name) for name, v in integers.items()]
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["b"]),
        node("Gather", ["shape", "one"], ["n"]),
        node("Concat", ["b", "n", "heads"], ["split"], axis=0),
        node("Reshape", ["q", "split"], ["h"]),
        node("Transpose", ["h"], ["left"], perm=[0, 2, 1, 3]),
        node("Transpose", ["h"], ["right"], perm=[0, 2, 3, 1]),
        node("MatMul", ["left", "right"], ["products"]),
        node("Mul", ["products", "scale"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "left"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Concat", ["b", "n", "width"], ["joined"], axis=0),
        node("Reshape", ["back", "joined"], ["tokens"]),
        node("ReduceMean", ["tokens"], ["mean"], axes=[1], keepdims=0),
        node("MatMul", ["mean", "wc"], ["logits"]),
        node("Softmax", ["logits"], ["y"], axis=-1),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", kind, ["batch", "length", WIDTH])],
        [helper.make_tensor_value_info("y", kind, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def symbolic_kernels(module: tvm.IRModule) -> list[tuple[str, tirx.PrimFunc]]:
    """Return the kernels with a symbol in the shape of a parameter."""
    return [
        (var.name_hint, function)
        for var, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
        and any(
            not isinstance(dim, tirx.IntImm)
            for param in function.params
            for dim in getattr(param.ty, "shape", ())
        )
    ]


def allocations(module: tvm.IRModule) -> list[str]:
    """Return one line for each storage that `main` asks for."""
    lines = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if getattr(getattr(call, "op", None), "name", "") == "relax.memory.alloc_storage":
                size = call.args[0].values[0]
                fixed = "static" if isinstance(size, tirx.IntImm) else "when the model runs"
                lines.append(f"{binding.var.name}: {size} bytes, {fixed}")
            elif getattr(getattr(call, "op", None), "name", "") == "relax.builtin.alloc_tensor":
                lines.append(f"{binding.var.name}: {binding.var.ty}, when the model runs")
    return lines


def largest_error(model: relaxc.CompiledModel, proto: onnx.ModelProto, *shape: int) -> float:
    """Return the largest error on random input of this shape, over the largest value."""
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    expected = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    return float(np.abs(model(x) - expected).max() / np.abs(expected).max())


def main() -> None:
    """Walk one model through all stages."""
    proto = classifier()
    errors: list[float] = []

    title("1. Import: dim_params become symbols, shape arithmetic disappears")
    imported = import_onnx(proto)
    print(f"inputs  {imported.inputs}\noutputs {imported.outputs}\n")
    print("Shape, Gather and Concat were computed on symbols: R.reshape holds the result.\n")
    show(imported.module["main"].script(show_meta=False))

    title("2. After `fuse`: kernels whose loops run to a symbol")
    target = host_target(1)
    context = PassContext(target, Machine.from_target(target), threads=1)
    pipeline = default_pipeline()
    fused = pipeline.until("fuse").run(imported.module, context)
    found = symbolic_kernels(fused)
    print(", ".join(name for name, _ in found) + "\n")
    name, kernel = min(found, key=lambda item: len(item[1].script()))
    show(kernel.script(), most=40)

    title(f"3. After `schedule`: parallel over symbolic loops, vectorized over static ones: {name}")
    scheduled = pipeline.until("schedule").run(imported.module, context)
    after = {var.name_hint: f for var, f in scheduled.functions.items()}
    show(after.get(name, symbolic_kernels(scheduled)[0][1]).script(), most=40)

    title("4. After `memory`: what has a symbolic size is allocated when the model runs")
    planned = pipeline.run(imported.module, context)
    print("\n".join(allocations(planned)))

    title("5. Build once, run at several sizes")
    model = relaxc.compile(proto, threads=1, progress=False)
    print(f"{model}\n")
    for shape in ((1, 1, WIDTH), (1, 7, WIDTH), (3, 32, WIDTH), (16, 100, WIDTH)):
        errors.append(largest_error(model, proto, *shape))
        print(f"x {str(shape):14} error {errors[-1]:.1e}")
    try:
        model(np.zeros((1, 7, WIDTH + 1), "float32"))
    except relaxc.InvalidInput as fault:
        print(f"\nA size that the model fixes is checked before anything runs:\n    {fault}")

    title("6. Fix some sizes and name the others: dynamic_shapes")
    fixed = relaxc.compile(
        proto, threads=1, progress=False, dynamic_shapes={"x": {0: 1, 1: "tokens"}}
    )
    print(fixed)
    errors.append(largest_error(fixed, proto, 1, 20, WIDTH))

    title("7. Buckets: static versions for the sizes that matter, in the same file")
    bucketed = relaxc.compile(
        proto, threads=1, progress=False, dynamic_shapes={"x": {0: [1, 8], 1: [16, 64]}}
    )
    for step, what in bucketed.report.fired:
        if step == "buckets":
            print(what)
    for step, subject, reason in bucketed.report.declined:
        if step == "buckets":
            print(f"not done: {subject}: {reason}")
    print(
        "\nA batch is padded to the next bucket: its samples do not depend on each other, and that"
        "\nis proved from the loop nests. A length is not, for attention and the mean mix its"
        "\nplaces: lengths that are no bucket run the symbolic version.\n"
    )
    for shape in ((1, 16, WIDTH), (5, 64, WIDTH), (5, 40, WIDTH), (9, 16, WIDTH)):
        errors.append(largest_error(bucketed, proto, *shape))
        chosen = bucketed.buckets.choose({"batch": shape[0], "length": shape[1]})
        print(f"x {str(shape):14} runs {str(chosen or 'the symbolic version'):28} "
              f"error {errors[-1]:.1e}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        one = model.save(Path(folder) / "one.so").stat().st_size
        five = bucketed.save(Path(folder) / "five.so").stat().st_size
        functions = 1 + len(bucketed.buckets.versions())
        print(f"\none version: {one:,} bytes; {functions} versions: {five:,} bytes")
        print("equal weights and equal kernels are stored once")

    if not max(errors) <= 1e-4:
        sys.exit("a compiled model is wrong")


if __name__ == "__main__":
    main()
