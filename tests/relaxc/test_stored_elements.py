"""Inputs and outputs of types that are only stored: in every array kind, and after a reload."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from onnx import ModelProto, TensorProto, helper

import relaxc
from relaxc.compiled_model import CompiledModel
from relaxc.errors import InvalidInput


def doubling(kind: int) -> ModelProto:
    """Return y = cast(2 * cast(x, float), type of x) for a stored element type."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "wide"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=kind),
    ]
    graph = helper.make_graph(
        nodes, "doubling",
        [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("y", kind, [2, 3])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.fixture(scope="module")
def float8_model() -> CompiledModel:
    return relaxc.compile(doubling(TensorProto.FLOAT8E4M3FN), threads=1, progress=False)


X = np.array([[0.5, -1.0, 3.0], [0.0, 16.0, -0.25]], "float32")


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.INT4, ml_dtypes.int4),
        (TensorProto.UINT4, ml_dtypes.uint4),
        (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
    ],
)
def test_numpy_arrays_keep_their_type(kind: int, dtype: type) -> None:
    x = np.array([[1, 0, 3], [2, 1, 0]]).astype("float32").astype(dtype)
    model = relaxc.compile(doubling(kind), threads=1, progress=False)
    assert model.inputs[0].dtype == model.outputs[0].dtype == str(np.dtype(dtype))
    result = model(x)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.astype("float32"), x.astype("float32") * 2)


def test_a_strided_array_and_a_saved_model(float8_model: CompiledModel, tmp_path: Path) -> None:
    x = np.repeat(X, 2, axis=1).astype(ml_dtypes.float8_e4m3fn)[:, ::2]
    loaded = relaxc.load(float8_model.save(tmp_path / "model.so"))
    for model in (float8_model, loaded):
        np.testing.assert_array_equal(model(x).astype("float32"), X * 2)


def test_bytes_are_not_taken_for_elements(float8_model: CompiledModel) -> None:
    with pytest.raises(InvalidInput, match="float8_e4m3fn"):
        float8_model(X.astype("uint8"))


def test_tvm_tensors_come_back_as_bytes(float8_model: CompiledModel) -> None:
    x = X.astype(ml_dtypes.float8_e4m3fn)
    result = float8_model(tvm.runtime.tensor(x))
    doubled = result.numpy().view(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(doubled.astype("float32"), X * 2)


def test_torch_tensors(float8_model: CompiledModel) -> None:
    torch = pytest.importorskip("torch")
    result = float8_model(torch.tensor(X).to(torch.float8_e4m3fn))
    assert result.dtype == torch.float8_e4m3fn
    np.testing.assert_array_equal(result.float().numpy(), X * 2)
