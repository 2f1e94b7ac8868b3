"""Weights in files of their own: read within the model's folder, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from frontends.onnx.external_data import read_weight
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


_MEASURE = """
import re, sys
from pathlib import Path
from frontends.onnx import import_onnx

def resident(what):
    return int(re.search(what + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

import_onnx(sys.argv[1] + "/small.onnx")
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = resident("VmRSS")
imported = import_onnx(sys.argv[1] + "/model.onnx")
print(resident("VmHWM") - before)
"""


def test_large_weights_are_in_memory_once(folder: Path) -> None:
    """The bytes are read into the constant itself: models of many gigabytes need no more memory."""
    rows, size = 1 << 16, 1 << 26  # bytes; what the import takes beside the weights is far less
    with (folder / "w.bin").open("r+b") as stream:
        stream.truncate(size)  # a hole: it takes no room on the disk
    for name, count in (("small.onnx", 1), ("model.onnx", size // 4 // rows)):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count, rows])
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="w.bin")
        nodes = [helper.make_node("Gather", ["w", "i"], ["y"])]
        graph = helper.make_graph(
            nodes, "table", [helper.make_tensor_value_info("i", TensorProto.INT64, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, rows])], [weight],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        (folder / name).write_bytes(made.SerializeToString())
    command = [sys.executable, "-W", "ignore", "-c", _MEASURE, str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert size <= int(found.stdout) * 1024 < 1.5 * size


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int4", "bool"])
def test_weights_of_every_kind_of_storage(folder: Path, dtype: str) -> None:
    """Some types cannot be shared with NumPy, or have two elements in a byte."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.array([1, 0, 1, 1], "float32").astype(kind)
    weight = onnx.numpy_helper.from_array(array, "w")
    (folder / "w.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    value = read_weight(weight, str(folder / "model.onnx"))
    assert value.dtype == dtype and value.array is not None
    np.testing.assert_array_equal(value.array.astype("float32"), array.astype("float32"))


def test_a_file_that_shrinks_after_the_check(folder: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(b"1234")
    with pytest.raises(InvalidModel, match="too short"):
        read_weight(weight, str(folder / "model.onnx"))
