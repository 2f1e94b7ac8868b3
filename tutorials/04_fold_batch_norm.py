"""Tutorial 4: fold batch normalization into its neighbours, by hand and by the passes.

    python tutorials/04_fold_batch_norm.py

At inference a batch norm is a scale and a shift of each channel. A convolution is linear, so the
scale can be multiplied into its weights and the shift added to its bias: the norm costs nothing.
The script does this with NumPy first, then lets the passes do it, shows each stage, and ends with
the cases in which it must not be done.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import tvm
from stage_printing import columns, show, title
from tvm import relax
from tvm.relax import op as R

from relax_passes.decompose_inference import decompose_inference, scale_and_shift
from relax_passes.fold_batch_norm import fold_batch_norm
from relax_passes.fold_preceding_batch_norm import fold_preceding_batch_norm
from relax_passes.pass_base import GraphPass, PassContext
from tir_schedules.machine import Machine, host_target

Build = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]
RNG = np.random.default_rng(4)
CHANNELS = 4


def weights(*shape: int, positive: bool = False) -> relax.Expr:
    """Return a constant of random values."""
    values = RNG.standard_normal(shape).astype("float32")
    return relax.const(np.abs(values) + np.float32(0.5) if positive else values)


def norm(bb: relax.BlockBuilder, x: relax.Expr, channels: int) -> relax.Expr:
    """Apply a batch norm with random constant parameters to axis 1."""
    parameters = [weights(channels) for _ in range(3)]
    triple = R.nn.batch_norm(
        x, *parameters, weights(channels, positive=True), axis=1, training=False
    )
    return bb.emit(relax.TupleGetItem(bb.emit(triple), 0))


def module(build: Build) -> tvm.IRModule:
    """Return a module whose `main` takes an image `x`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, CHANNELS, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def conv_norm_relu(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Return the block that most convolutional networks are made of."""
    return R.nn.relu(norm(bb, bb.emit(R.nn.conv2d(x, weights(8, CHANNELS, 3, 3), padding=1)), 8))


def norm_conv(padding: int) -> Build:
    """Return a norm before a convolution, as DenseNet has without its ReLU."""
    return lambda bb, x: R.nn.conv2d(
        norm(bb, x, CHANNELS), weights(8, CHANNELS, 3, 3), padding=padding
    )


def two_readers(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Return a convolution whose plain result is needed as well."""
    y = bb.emit(R.nn.conv2d(x, weights(8, CHANNELS, 1, 1)))
    return R.add(norm(bb, y, 8), y)


def chain(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Return a transposed convolution in the middle of a chain of scales and shifts."""
    y = bb.emit(R.multiply(x, weights(CHANNELS, 1, 1)))
    y = bb.emit(R.nn.conv2d_transpose(y, weights(CHANNELS, 6, 2, 2), strides=2))
    y = norm(bb, bb.emit(R.add(y, weights(6, 1, 1))), 6)
    return R.divide(y, relax.const(np.float32(3)))


def operators(mod: tvm.IRModule) -> str:
    """Return how often `main` uses each operator."""
    counts = Counter(
        str(binding.value.op.name).removeprefix("relax.").removeprefix("nn.")
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    )
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def run(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """Build a module with TVM's own defaults and run it, once: its code is not optimized."""
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def main() -> None:
    """Fold by hand, by the passes, and where it must be refused."""
    target = host_target()
    image = RNG.standard_normal((1, CHANNELS, 8, 8)).astype("float32")

    title("1. The arithmetic: (conv(x, W)) * s + t = conv(x, W * s) + t, one number a channel")
    gamma, beta, mean, var = (np.abs(RNG.standard_normal(3)) + 0.5 for _ in range(4))
    s, t = scale_and_shift(gamma, beta, mean, var, 1e-5)
    w, pixel = RNG.standard_normal((3, 5)), RNG.standard_normal(5)  # a 1x1 convolution, one pixel
    normalized = gamma * (w @ pixel - mean) / np.sqrt(var + 1e-5) + beta
    folded = (w * s[:, None]) @ pixel + t
    columns(
        [
            (c, f"{s[c]:.4f}", f"{t[c]:.4f}", f"{normalized[c]:.6f}", f"{folded[c]:.6f}")
            for c in range(3)
        ],
        *("channel", "scale s", "shift t", "norm(conv(x))", "conv(x, W s) + t"),
    )

    title("2. A block of a network, as it is imported")
    block = module(conv_norm_relu)
    show(block["main"].script(show_meta=False))

    title("3. After fold_batch_norm: other weights, a bias, and no norm")
    context = PassContext(target, Machine.from_target(target))
    after, _ = fold_batch_norm(block, context)
    show(after["main"].script(show_meta=False))
    error = np.abs(run(after, image) - run(decompose_inference(block, context)[0], image)).max()
    print(f"largest difference of the results: {error:.1e}")

    title("4. Forms that fold, and forms that are refused")
    cases: list[tuple[str, Build, tuple[GraphPass, ...]]] = [
        ("conv, norm, relu", conv_norm_relu, (fold_batch_norm,)),
        (
            "scale, transposed conv, bias, norm, scale",
            chain,
            (fold_preceding_batch_norm, fold_batch_norm),
        ),
        ("norm, conv without padding", norm_conv(0), (fold_preceding_batch_norm,)),
        ("norm, conv with padding", norm_conv(1), (fold_preceding_batch_norm,)),
        ("conv with two readers, norm", two_readers, (fold_batch_norm,)),
    ]
    wrong = False
    for name, build, passes in cases:
        before = module(build)
        context = PassContext(target, Machine.from_target(target))
        changed = before
        for graph_pass in passes:
            changed, _ = graph_pass(changed, context)
        wanted = run(decompose_inference(before, context)[0], image)
        got = run(decompose_inference(changed, context)[0], image)
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        wrong |= not error <= 1e-5
        print(f"{name}\n    before   {operators(before)}\n    after    {operators(changed)}")
        for _, subject, reason in dict.fromkeys(context.log.declined):
            print(f"    refused  {subject}: {reason}")
        print(f"    error    {error:.1e}")

    title("5. Why the border matters: the norm maps the image, but not the zeros around it")
    print(
        "norm(0) is the shift t, and a padded convolution reads 0 there. Folding t into the bias\n"
        "would add W * t for pixels that the window does not have. A scale alone keeps 0: it folds."
    )
    if wrong:
        sys.exit("a folded module is wrong")


if __name__ == "__main__":
    main()
