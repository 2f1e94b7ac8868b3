"""Every kind of bad file is one InvalidModel that names the file and the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from frontends.errors import InvalidModel
from frontends.onnx.initializers import read_initializers
from frontends.onnx.load_model import load_model
from tests.frontends.onnx.run_model import make_model


def _node(op: str, inputs: list[str], outputs: list[str], name: str = "") -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=name or f"node_{outputs[0]}")


def _model(nodes: list[onnx.NodeProto], output: str = "y") -> onnx.ModelProto:
    return make_model(nodes, {"x": ("float32", [2, 3])}, [output])


def _saved_with_external_data(folder: Path) -> Path:
    weight = np.arange(600, dtype="float32").reshape(3, 200)
    model = make_model(
        [_node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", [2, 3])}, ["y"], {"w": weight}
    )
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"no such file .*gone\.onnx"):
        load_model(tmp_path / "gone.onnx")


@pytest.mark.parametrize("content", [b"", b"not an onnx model at all", b"\x00" * 64])
def test_bytes_that_are_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=r"bad\.onnx"):
        load_model(path)


def test_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(_model([_node("Relu", ["x"], ["y"])]).SerializeToString()[:-7])
    with pytest.raises(InvalidModel, match=r"cut\.onnx"):
        load_model(path)


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="cannot read"):
        load_model(tmp_path)


def test_external_data_is_loaded(tmp_path: Path) -> None:
    model, name = load_model(_saved_with_external_data(tmp_path))
    assert name.endswith("model.onnx")
    weight = read_initializers(model.graph, name)["w"].array
    assert weight is not None
    np.testing.assert_array_equal(weight.reshape(-1), np.arange(600, dtype="float32"))


def test_external_data_missing(tmp_path: Path) -> None:
    path = _saved_with_external_data(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InvalidModel, match=r"'weights\.bin' is missing .*tensor 'w'"):
        load_model(path)


def test_external_data_too_short(tmp_path: Path) -> None:
    path = _saved_with_external_data(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"\x00" * 100)
    with pytest.raises(InvalidModel, match=r"too short: 100 bytes, 2400 needed .*tensor 'w'"):
        load_model(path)


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = _saved_with_external_data(inner)
    (inner / "weights.bin").rename(tmp_path / "weights.bin")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModel, match="outside the model's folder"):
        load_model(path)


def test_dangling_input_names_node_and_tensor() -> None:
    with pytest.raises(InvalidModel, match="nowhere") as caught:
        load_model(_model([_node("Add", ["x", "ghost"], ["y"], "adder")]))
    assert (caught.value.node, caught.value.tensor) == ("adder", "ghost")


def test_cycle() -> None:
    nodes = [_node("Add", ["x", "b"], ["a"]), _node("Relu", ["a"], ["b"])]
    with pytest.raises(InvalidModel, match="cycle") as caught:
        load_model(_model(nodes, "b"))
    assert caught.value.tensor == "b"


def test_name_defined_twice() -> None:
    nodes = [_node("Relu", ["x"], ["y"]), _node("Abs", ["x"], ["y"], "again")]
    with pytest.raises(InvalidModel, match="twice") as caught:
        load_model(_model(nodes))
    assert (caught.value.node, caught.value.tensor) == ("again", "y")


def test_output_defined_nowhere() -> None:
    with pytest.raises(InvalidModel, match="output is defined nowhere"):
        load_model(_model([_node("Relu", ["x"], ["y"])], "z"))


def test_unknown_attribute_is_refused() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], bogus=1)
    with pytest.raises(InvalidModel, match="bogus"):
        load_model(_model([node]))


def test_contradicting_types() -> None:
    model = make_model(
        [_node("Add", ["x", "i"], ["y"])],
        {"x": ("float32", [2]), "i": ("int64", [2])},
        ["y"],
    )
    with pytest.raises(InvalidModel):
        load_model(model)


def test_declared_shapes_do_not_matter() -> None:
    model = _model([_node("Relu", ["x"], ["y"])])
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 7, 7]))
    load_model(model)


def test_given_model_is_not_modified() -> None:
    model = _model([_node("Relu", ["x"], ["y"])])
    before = model.SerializeToString(deterministic=True)
    load_model(model)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("LayerNormalization", ["x", "x"], {"axis": 2**31}),
        ("GatherND", ["x", "i"], {"batch_dims": -100}),
        ("Split", ["x"], {"num_outputs": 2**31}),
    ],
)
def test_numbers_of_axes_and_outputs_that_end_shape_inference(
    op: str, inputs: list[str], attributes: dict[str, int]
) -> None:
    """onnx's inference ends the process on these, or takes 16 GiB: it must not see them."""
    model = make_model(
        [helper.make_node(op, inputs, ["y"], **attributes)],
        {"x": ("float32", [3, 4]), "i": ("int64", [2, 2])},
        ["y"],
        opset=18,
    )
    (name,) = attributes
    with pytest.raises(InvalidModel, match=f"attribute {name} is .* out of range"):
        load_model(model)
