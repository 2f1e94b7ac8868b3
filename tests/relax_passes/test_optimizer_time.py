"""The optimizer takes time linear in the graph, and two seconds at most for ResNet-50's.

Calls of each Python function are counted, which is exact. Processor time, not wall time, says what
TVM's own passes take: tests run next to each other.
"""

from __future__ import annotations

import cProfile
import gc
import time
from collections import Counter
from types import CodeType

import numpy as np
import tvm
from tvm import relax

from relax_passes.pipeline import Pipeline, default_pipeline
from tests.relax_passes.pass_checks import context, module

op, nn = relax.op, relax.op.nn
RNG = np.random.default_rng(0)


def processor_seconds(pipeline: Pipeline, mod: tvm.IRModule) -> float:
    """Return the seconds that the passes take, without those of freeing what others left."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        pipeline.run(mod, context())
        return time.process_time() - start
    finally:
        gc.enable()


def deep_network(layers: int) -> tvm.IRModule:
    """Ten bindings a layer: product, bias, activation, views, a residual, a chain."""
    half = relax.const(np.float32(0.5))
    weight = relax.const(RNG.standard_normal((16, 16)).astype("float32"))

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(layers):
            bias = relax.const(RNG.standard_normal(16).astype("float32"))
            y = bb.emit(op.add(bb.emit(op.matmul(x, weight)), bias))
            y = bb.emit(op.reshape(bb.emit(nn.relu(y)), (2, 2, 16)))
            y = bb.emit(op.multiply(bb.emit(op.reshape(y, (4, 16))), half))
            y = bb.emit(op.tanh(bb.emit(op.add(y, x))))
            x = bb.emit(op.exp(bb.emit(op.negative(y))))
        return x

    return module((4, 16), build)


def calls_by_function(pipeline: Pipeline, mod: tvm.IRModule) -> Counter[str]:
    """Count the calls of each function: by file and line, or by what Python calls it.

    No garbage is collected meanwhile: what earlier tests left calls back when it is freed.
    """
    profile = cProfile.Profile()
    gc.disable()
    try:
        profile.runcall(pipeline.run, mod, context())
    finally:
        gc.enable()
    calls: Counter[str] = Counter()
    for entry in profile.getstats():
        code = entry.code
        name = f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else code
        calls[name] += entry.callcount
    return calls


def test_calls_are_linear_in_the_graph() -> None:
    """No function is called more than 10.5 times as often for ten times the graph."""
    optimizer = default_pipeline().until("fuse")
    processor_seconds(optimizer, deep_network(3))  # imports, caches
    small, large = (calls_by_function(optimizer, deep_network(n)) for n in (12, 120))
    assert large.total() <= 10.5 * small.total()
    # What is called between layers is called once less than there are layers.
    assert not {f: (small[f], n) for f, n in large.items() if n > 10.5 * small[f] + 20}


def test_time_is_linear_in_the_graph() -> None:
    """Ten times the graph takes ten to eleven times as long, and more where caches are shared.

    Load comes and goes: one pair of runs beside each other within the bound is enough.
    """
    optimizer = default_pipeline().until("fuse")
    processor_seconds(optimizer, deep_network(3))  # imports, caches
    ratios = []
    while len(ratios) < 4 and min(ratios, default=15.0) >= 15:
        small = min(processor_seconds(optimizer, deep_network(20)) for _ in range(2))
        ratios.append(processor_seconds(optimizer, deep_network(200)) / small)
    assert min(ratios) < 15, ratios


def resnet50() -> tvm.IRModule:
    """The graph of ResNet-50 with batch norm as the exporter leaves it."""

    def conv(bb: relax.BlockBuilder, x: relax.Var, o: int, k: int, stride: int = 1) -> relax.Var:
        i = int(x.ty.shape[1])
        weight = relax.const(RNG.standard_normal((o, i, k, k), "float32") / np.float32(k * k * i))
        ones = [relax.const(np.full(o, v, "float32")) for v in (1.5, 0.1, 0.2, 0.9)]
        y = bb.emit(nn.conv2d(x, weight, strides=stride, padding=k // 2))
        return bb.emit(nn.batch_norm(y, *ones, 1, training=False)[0])

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        x = bb.emit(nn.max_pool2d(bb.emit(nn.relu(conv(bb, x, 64, 7, 2))), 3, 2, 1))
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(blocks):
                step = stride if number == 0 else 1
                y = bb.emit(nn.relu(conv(bb, x, width, 1)))
                y = bb.emit(nn.relu(conv(bb, y, width, 3, step)))
                y = conv(bb, y, 4 * width, 1)
                side = conv(bb, x, 4 * width, 1, step) if number == 0 else x
                x = bb.emit(nn.relu(bb.emit(op.add(y, side))))
        pooled = bb.emit(op.reshape(bb.emit(op.mean(x, [2, 3])), (1, 2048)))
        return op.matmul(pooled, relax.const(np.zeros((2048, 1000), "float32")))

    return module((1, 3, 224, 224), build)


def test_all_graph_passes_on_resnet50_take_two_seconds_at_most() -> None:
    graph_passes = default_pipeline().until("layout")
    processor_seconds(graph_passes, deep_network(3))
    network = resnet50()
    assert min(processor_seconds(graph_passes, network) for _ in range(3)) < 2
