"""A residual that a kernel adds last may be overwritten; what is read otherwise may not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import te

import relaxc
from relax_passes.analysis.overwrite_epilogue import epilogue_operands
from relax_passes.pipeline import default_pipeline

SIZE = (8, 8)


def product(store: Callable[..., te.Tensor]) -> tvm.tirx.PrimFunc:
    """Return a product of x and y, finished by `store(product, residual)`; parameters x, y, r."""
    x, y, residual = (te.placeholder(SIZE, name=name) for name in ("x", "y", "r"))
    k = te.reduce_axis((0, 8), "k")
    dot = te.compute(SIZE, lambda i, j: te.sum(x[i, k] * y[k, j], k), name="dot")
    return te.create_prim_func([x, y, residual, store(dot, residual)])


def added(dot: te.Tensor, r: te.Tensor) -> te.Tensor:
    return te.compute(SIZE, lambda i, j: dot[i, j] + r[i, j], name="out")


def turned(dot: te.Tensor, r: te.Tensor) -> te.Tensor:
    return te.compute(SIZE, lambda i, j: dot[i, j] + r[j, i], name="out")


def read_before(dot: te.Tensor, r: te.Tensor) -> te.Tensor:
    scaled = te.compute(SIZE, lambda i, j: r[i, j] * 2.0, name="scaled")
    return te.compute(SIZE, lambda i, j: dot[i, j] + scaled[i, j] + r[i, j], name="out")


def summed(dot: te.Tensor, r: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 8), "k2")
    return te.compute(SIZE, lambda i, j: te.sum(dot[i, k] * r[i, j], k), name="out")


def test_what_is_added_where_it_is_stored_may_be_overwritten() -> None:
    assert epilogue_operands(product(added)) == [(2, 3)]


@pytest.mark.parametrize("store", [turned, read_before, summed])
def test_what_is_read_elsewhere_or_again_may_not(store: Callable[..., te.Tensor]) -> None:
    assert epilogue_operands(product(store)) == []


def test_tiles_that_overlap_store_a_point_twice() -> None:
    """Two tiles of 5 rows cover 8 rows: the second computes two rows of the first again."""
    schedule = tvm.s_tir.Schedule(product(added))
    tiled = schedule.mod["main"]
    assert epilogue_operands(tiled) == [(2, 3)]
    stored = schedule.get_sblock("out")
    rows, _ = schedule.get_loops(stored)
    schedule.split(rows, [2, 4])
    assert epilogue_operands(schedule.mod["main"]) == [(2, 3)]
    (realize,) = _realizes(schedule.mod["main"], "out")
    outer = schedule.get(schedule.get_loops(stored)[0]).loop_var
    inner = schedule.get(schedule.get_loops(stored)[1]).loop_var
    overlapping = tvm.s_tir.SBlockRealize(
        [outer * 3 + inner, realize.iter_values[1]], realize.predicate, realize.block
    )
    func = schedule.mod["main"]
    body = _replace(func.body, realize, overlapping)
    assert epilogue_operands(tvm.tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)) == []


def _realizes(func: tvm.tirx.PrimFunc, name: str) -> list[tvm.s_tir.SBlockRealize]:
    from tvm_ffi import structural_walk

    found: list[tvm.s_tir.SBlockRealize] = []
    structural_walk(func.body, (tvm.s_tir.SBlockRealize, found.append))
    return [realize for realize in found if realize.block.name_hint == name]


def _replace(body: tvm.tirx.Stmt, old: tvm.s_tir.SBlockRealize, new: object) -> tvm.tirx.Stmt:
    from tvm_ffi import structural_map

    kind = tvm.s_tir.SBlockRealize
    return structural_map(body, (kind, lambda each: new if each.same_as(old) else each))


def residual(size: int, channels: int = 32) -> onnx.ModelProto:
    """Two convolutions around which a tensor is added again."""
    rng = np.random.default_rng(0)
    conv = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], **conv),
        helper.make_node("Relu", ["a"], ["skip"]),
        helper.make_node("Conv", ["skip", "w1"], ["b"], **conv),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"], **conv),
        helper.make_node("Add", ["d", "skip"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "w3"], ["y"], **conv),
    ]
    weights = [
        numpy_helper.from_array(
            rng.standard_normal((channels, 16 if k == 0 else channels, 3, 3)).astype("float32")
            * np.float32(0.1),
            f"w{k}",
        )
        for k in range(4)
    ]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", kind, [1, 16, size, size])],
        [helper.make_tensor_value_info("y", kind, [1, channels, size, size])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("size", [7, 13])
def test_a_convolution_lays_its_result_on_the_residual(size: int) -> None:
    source = residual(size)
    x = np.random.default_rng(1).standard_normal((1, 16, size, size)).astype("float32")
    results, arenas = [], []
    for on in (True, False):
        passes = default_pipeline().with_options("plan_memory", in_place=on, poison=on)
        model = relaxc.compile(source, threads=2, progress=False, passes=passes)
        results.append(model(x))
        arenas.append(model.report.arena_bytes)
    np.testing.assert_array_equal(*results)
    assert 3 * arenas[0] == 2 * arenas[1]
