"""Measure how the time of an ONNX import grows with the number of nodes.

    python -m benchmarks.import_time

Imports ten chains of 1,000 nodes and one of 10,000, of each kind that once made importers
quadratic, and prints the processor seconds of one of each. The goal is at most 11 times as long for
ten times the nodes, and less than 20 s. Ten are timed together because a short import finds quiet
moments that a long one of the same work does not: other load displaces its caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from frontends.onnx import import_onnx

_node = helper.make_node
SMALL, LARGE, ROUNDS = 1_000, 10_000, 5


def plain(count: int) -> onnx.ModelProto:
    """Return a chain of Add, Relu, Reshape and MatMul with shared weights."""
    kinds = [
        ("Add", lambda x: [x, x]),
        ("Relu", lambda x: [x]),
        ("Reshape", lambda x: [x, "to"]),
        ("MatMul", lambda x: [x, "w"]),
    ]
    nodes = []
    for i in range(count):
        name, inputs = kinds[i % len(kinds)]
        nodes.append(_node(name, inputs(f"v{i}"), [f"v{i + 1}"]))
    weights = {"w": np.ones((4, 4), "float32"), "to": np.asarray([2, 4])}
    return _model(nodes, count, weights)


def with_initializers(count: int) -> onnx.ModelProto:
    """Return a chain of MatMul and Add, each with a weight of its own."""
    nodes, weights = [], {}
    for i in range(count):
        nodes.append(_node("MatMul" if i % 2 else "Add", [f"v{i}", f"w{i}"], [f"v{i + 1}"]))
        weights[f"w{i}"] = np.full((4, 4) if i % 2 else (4,), i, "float32")
    return _model(nodes, count, weights)


def with_constants(count: int) -> onnx.ModelProto:
    """Return a chain of Add whose other operands are computed from Constant nodes."""
    nodes = []
    for i in range(count // 4):
        nodes.append(_node("Constant", [], [f"c{i}"], value_float=float(i)))
        nodes.append(_node("Constant", [], [f"d{i}"], value_float=1.0))
        nodes.append(_node("Mul", [f"c{i}", f"d{i}"], [f"e{i}"]))
        nodes.append(_node("Add", [f"v{i}", f"e{i}"], [f"v{i + 1}"]))
    return _model(nodes, count // 4)


def with_shape_arithmetic(count: int) -> onnx.ModelProto:
    """Return a chain of reshapes whose shapes are computed from a symbolic shape."""
    nodes = []
    for i in range(count // 5):
        nodes.append(_node("Shape", [f"v{i}"], [f"s{i}"]))
        nodes.append(_node("Gather", [f"s{i}", "zero"], [f"g{i}"]))
        nodes.append(_node("Concat", [f"g{i}", "four"], [f"c{i}"], axis=0))
        nodes.append(_node("Reshape", [f"v{i}", f"c{i}"], [f"r{i}"]))
        nodes.append(_node("Relu", [f"r{i}"], [f"v{i + 1}"]))
    weights = {"zero": np.asarray([0]), "four": np.asarray([4])}
    return _model(nodes, count // 5, weights, batch="n")


def with_functions(count: int) -> onnx.ModelProto:
    """Return a chain in which every node calls a function of its own."""
    opsets = [helper.make_opsetid("", 17)]
    nodes = [_node(f"F{i}", [f"v{i}"], [f"v{i + 1}"], domain="local") for i in range(count)]
    model = _model(nodes, count)
    model.functions.extend(
        helper.make_function("local", f"F{i}", ["a"], ["b"], [_node("Relu", ["a"], ["b"])], opsets)
        for i in range(count)
    )
    return model


KINDS: dict[str, Callable[[int], onnx.ModelProto]] = {
    make.__name__: make
    for make in (plain, with_initializers, with_constants, with_shape_arithmetic, with_functions)
}


def _model(
    nodes: list[onnx.NodeProto],
    last: int,
    weights: dict[str, np.ndarray] | None = None,
    batch: int | str = 2,
) -> onnx.ModelProto:
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", kind, [batch, 4])],
        [helper.make_tensor_value_info(f"v{last}", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def measure(make: Callable[[int], onnx.ModelProto], count: int, times: int) -> float:
    """Return the processor seconds of one import, of several models in a row."""
    models = [make(count) for _ in range(times)]
    start = time.process_time()
    for model in models:
        import_onnx(model)
    return (time.process_time() - start) / times


def main() -> None:
    """Print one row for each kind of chain."""
    import_onnx(plain(8))  # loads the operators
    print(f"{'chain':24}{SMALL:>8} nodes{LARGE:>8} nodes   ratio")
    for name, make in KINDS.items():
        measure(make, SMALL, 1)  # the first one of its kind also fills caches
        # In turns, so that other load meets both alike; it only adds to a time.
        rounds = [
            (measure(make, SMALL, LARGE // SMALL), measure(make, LARGE, 1)) for _ in range(ROUNDS)
        ]
        small, large = (min(times) for times in zip(*rounds, strict=True))
        print(f"{name:24}{small:12.2f} s{large:12.2f} s{large / small:8.1f}", flush=True)


if __name__ == "__main__":
    main()
