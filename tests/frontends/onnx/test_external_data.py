"""Weights in files of their own: read within the model's folder, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import run_imported
from tests.fuzz.malformed.case import model


def _external(folder: Path, **entries: str) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    weight.data_location = TensorProto.EXTERNAL
    for key, text in {"location": "w.bin", "offset": "0", "length": "12", **entries}.items():
        weight.external_data.add(key=key, value=text)
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a model's folder with a file of weights, and another one outside of it."""
    inner = tmp_path / "inner"
    inner.mkdir()
    for place in (inner, tmp_path):
        (place / "w.bin").write_bytes(np.asarray([1, 2, 3, 4], "float32").tobytes())
    return inner


def test_external_data_in_the_folder_is_read(folder: Path) -> None:
    (result,) = run_imported(_external(folder, offset="4"), {"x": np.zeros((2, 3), "float32")})
    np.testing.assert_array_equal(result, [[2, 3, 4]] * 2)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"location": "absent.bin"}, "missing"),
        ({"location": ""}, "missing"),
        ({"location": "."}, "missing"),
        ({"location": "../w.bin"}, "outside"),
        ({"location": "../inner/../w.bin"}, "outside"),
        ({"location": "a/../../w.bin"}, "outside"),
        ({"location": "/etc/hostname"}, "outside"),
        ({"location": "w\0.bin"}, "cannot be read"),
        ({"location": "w" * 5000}, "cannot be read"),
        ({"offset": "8"}, "too short"),
        ({"offset": "1000000000000000000"}, "too short"),
        ({"offset": "-4"}, "the offset of its external data is negative: -4"),
        ({"offset": "four"}, "no number"),
        ({"length": "1000000000000"}, "1000000000000 bytes"),
        ({"length": "4"}, "4 bytes"),
        ({"length": "-1"}, "the length of its external data is negative: -1"),
    ],
)
def test_bad_external_data(folder: Path, entries: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidModel, match="'w'") as caught:
        import_onnx(_external(folder, **entries))
    assert text in str(caught.value)


def test_a_location_that_is_no_text(folder: Path) -> None:
    path = _external(folder, location="w.b1n")
    path.write_bytes(path.read_bytes().replace(b"w.b1n", b"w.b\xffn"))
    with pytest.raises(InvalidModel, match="is no text") as caught:
        import_onnx(path)
    assert caught.value.tensor == "w"


@pytest.mark.parametrize("kind", ["file", "folder", "loop"])
def test_external_data_behind_a_link(folder: Path, kind: str) -> None:
    if kind == "file":
        (folder / "link").symlink_to(folder.parent / "w.bin")
        path = _external(folder, location="link")
    elif kind == "folder":
        (folder / "link").symlink_to(folder.parent)
        path = _external(folder, location="link/w.bin")
    else:
        (folder / "link").symlink_to("link")
        path = _external(folder, location="link")
    with pytest.raises(InvalidModel, match="'w'"):
        import_onnx(path)


def test_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    (folder / "link").symlink_to("w.bin")
    assert import_onnx(_external(folder, location="link")).inputs[0].name == "x"


def test_external_data_of_a_function_is_read_too(folder: Path) -> None:
    """A tensor may hide in a subgraph or a function: the same rules hold there."""
    hidden = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    hidden.data_location = TensorProto.EXTERNAL
    hidden.external_data.add(key="location", value="../w.bin")
    function = helper.make_function(
        "local",
        "F0",
        ["a"],
        ["c"],
        [
            helper.make_node("Constant", [], ["b"], value=hidden),
            helper.make_node("Add", ["a", "b"], ["c"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    made = model([helper.make_node("F0", ["x"], ["y"], domain="local")], functions=[function])
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(InvalidModel, match="outside"):
        import_onnx(folder / "model.onnx")


def test_external_data_without_a_folder(folder: Path) -> None:
    with pytest.raises(InvalidModel, match="no folder"):
        import_onnx(_external(folder).read_bytes())
