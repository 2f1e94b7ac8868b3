"""Bytes of intermediates are counted alike on both sides: no views, no results, no inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.intermediate_bytes import Traffic, ort_traffic, our_traffic, render, view_roots

pytest.importorskip("onnxruntime")


def saved(path: Path, nodes: list[onnx.NodeProto], *result: int) -> Path:
    """Save a model from x (8, 16) to y (`result`) and return its path."""
    weight = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(result))],
        [
            onnx.numpy_helper.from_array(weight, "w"),
            onnx.numpy_helper.from_array(np.array([16, 16]), "s"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def test_a_view_is_neither_kernel_nor_tensor(tmp_path: Path) -> None:
    """ReduceMax reads the bytes of the product; the product of 8 x 32 floats is all there is."""
    path = saved(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Reshape", ["a", "s"], ["b"]),
            helper.make_node("ReduceMax", ["b"], ["y"], axes=[1], keepdims=0),
        ],
        16,
    )
    feeds = {"x": np.ones((8, 16), np.float32)}
    assert ort_traffic(path, feeds) == our_traffic(path) == Traffic(2, 8 * 32 * 4)


def test_what_a_result_is_a_view_of_is_no_intermediate(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Reshape", ["a", "s"], ["y"]),
        ],
        16,
        16,
    )
    feeds = {"x": np.ones((8, 16), np.float32)}
    assert ort_traffic(path, feeds) == our_traffic(path) == Traffic(1, 0)


def test_views_of_views_have_one_root() -> None:
    nodes = [
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
    ]
    assert view_roots(helper.make_graph(nodes, "g", [], [])) == {"b": "a", "c": "a"}


def test_a_pass_can_be_off(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Tanh", ["b"], ["c"]),
            helper.make_node("ReduceL1", ["c"], ["y"], axes=[1], keepdims=0),
        ],
        8,
    )
    assert our_traffic(path).bytes == 8 * 32 * 4
    # Product, relu, tanh, and the absolute values that the norm adds.
    assert our_traffic(path, without=["fuse_operators"]).bytes == 4 * 8 * 32 * 4


def test_the_table_shows_the_ratio() -> None:
    row = render([("m", Traffic(3, 2000), Traffic(2, 500))]).splitlines()[-1]
    assert row == "| m | 3 | 2 | 2,000 | 500 | 0.25 |"


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit", "resnet50", "mobilenet_v2"])
def test_small_models_have_fewer_bytes_than_in_onnx_runtime(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.relaxc import test_kernel_counts as models

    model, _, example = models.export(
        getattr(models, name), dynamo=name in ("bert", "gpt2", "llama")
    )
    onnx.save(model, str(tmp_path / "m.onnx"))
    names = [value.name for value in model.graph.input]
    feeds = dict(zip(names, (x.numpy() for x in example), strict=True))
    ours, theirs = our_traffic(tmp_path / "m.onnx"), ort_traffic(tmp_path / "m.onnx", feeds)
    assert ours.kernels <= theirs.kernels
    assert ours.bytes < theirs.bytes
