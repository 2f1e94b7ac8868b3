"""Files of compiled models: whole or absent, and refused before their code is mapped."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from onnx import helper, numpy_helper

import relaxc
from relaxc import artifact
from relaxc.artifact import FOOTER, FORMAT_VERSION, MAGIC, read_metadata
from relaxc.compiled_model import CompiledModel
from relaxc.errors import IncompatibleArtifact, InvalidInput, InvalidModel
from relaxc.metadata import Metadata

X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(scope="module")
def saved(square_model: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return square_model.save(tmp_path_factory.mktemp("artifact") / "square.so")


@pytest.fixture
def never_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if the library is loaded."""

    def refuse(path: str) -> None:
        raise AssertionError(f"{path} was mapped before it was checked")

    monkeypatch.setattr(tvm_ffi, "load_module", refuse)


def rewrite(source: Path, target: Path, change: Callable[[Metadata], Metadata]) -> Path:
    """Copy a model with its metadata changed and its trailer consistent."""
    data = source.read_bytes()
    body_size = FOOTER.unpack(data[-FOOTER.size :])[0]
    text = change(read_metadata(source)).to_bytes()
    footer = FOOTER.pack(body_size, len(text), zlib.crc32(text), FORMAT_VERSION, MAGIC)
    target.write_bytes(data[:body_size] + text + footer)
    return target


def test_save_and_load_give_the_same_model(square_model: CompiledModel, saved: Path) -> None:
    model = relaxc.load(saved)
    assert model.inputs == square_model.inputs and model.outputs == square_model.outputs
    assert model.target == square_model.target and model.threads == square_model.threads
    assert model.report == square_model.report
    np.testing.assert_array_equal(model(X), square_model(X))


def test_a_loaded_model_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    copy = relaxc.load(saved).save(tmp_path / "copy.so")
    assert copy.read_bytes() == saved.read_bytes()
    np.testing.assert_array_equal(relaxc.load(copy)(X), X * X)


def test_any_file_name_will_do(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.relaxc"
    path.write_bytes(saved.read_bytes())
    np.testing.assert_array_equal(relaxc.load(path)(X), X * X)


def test_saving_and_loading_prints_nothing(
    square_model: CompiledModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    relaxc.load(square_model.save(tmp_path / "model.so"))
    assert capfd.readouterr().err == ""


def test_saving_replaces_a_file_that_is_in_use(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(saved.read_bytes())
    model = relaxc.load(path)
    relaxc.load(saved).save(path)
    np.testing.assert_array_equal(model(X), X * X)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="No such file"):
        relaxc.load(tmp_path / "absent.so")


@pytest.mark.parametrize("content", [b"", b"x", b"not a library at all" * 100])
def test_a_file_that_is_not_ours(tmp_path: Path, never_mapped: None, content: bytes) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(content)
    with pytest.raises(IncompatibleArtifact, match="not a model compiled by relaxc"):
        relaxc.load(path)


def test_a_library_that_is_not_ours(saved: Path, tmp_path: Path, never_mapped: None) -> None:
    data = saved.read_bytes()
    path = tmp_path / "plain.so"
    path.write_bytes(data[: FOOTER.unpack(data[-FOOTER.size :])[0]])
    with pytest.raises(IncompatibleArtifact, match="not a model compiled by relaxc"):
        relaxc.load(path)


@pytest.mark.parametrize("keep", [0.001, 0.3, 0.9])
def test_a_truncated_file(saved: Path, tmp_path: Path, never_mapped: None, keep: float) -> None:
    data = saved.read_bytes()
    body_size = FOOTER.unpack(data[-FOOTER.size :])[0]
    path = tmp_path / "cut.so"
    path.write_bytes(data[: int(body_size * keep)])
    with pytest.raises(IncompatibleArtifact, match="cut short"):
        relaxc.load(path)


@pytest.mark.parametrize("missing", [1, 2, 7, 8, 20, 32, 33, 200])
def test_a_file_without_its_last_bytes(
    saved: Path, tmp_path: Path, never_mapped: None, missing: int
) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(saved.read_bytes()[:-missing])
    with pytest.raises(IncompatibleArtifact, match="cut short or damaged"):
        relaxc.load(path)


def test_a_file_with_a_hole(saved: Path, tmp_path: Path, never_mapped: None) -> None:
    data = saved.read_bytes()
    path = tmp_path / "hole.so"
    path.write_bytes(data[:1000] + data[2000:])
    with pytest.raises(IncompatibleArtifact, match="damaged"):
        relaxc.load(path)


def test_damaged_metadata(saved: Path, tmp_path: Path, never_mapped: None) -> None:
    data = bytearray(saved.read_bytes())
    data[-FOOTER.size - 5] ^= 1
    path = tmp_path / "bits.so"
    path.write_bytes(data)
    with pytest.raises(IncompatibleArtifact, match="checksum"):
        relaxc.load(path)


def test_another_file_format(saved: Path, tmp_path: Path, never_mapped: None) -> None:
    data = saved.read_bytes()
    body, text, checksum, version, magic = FOOTER.unpack(data[-FOOTER.size :])
    path = tmp_path / "future.so"
    path.write_bytes(data[: -FOOTER.size] + FOOTER.pack(body, text, checksum, version + 1, magic))
    with pytest.raises(IncompatibleArtifact, match=f"format {version + 1}"):
        relaxc.load(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"relaxc_version": "99.0.0"}, "relaxc 99.0.0"),
        ({"tvm_version": "0.99.0"}, "TVM 0.99.0"),
        ({"cpu_features": ("avx2", "avx1024")}, "lacks avx1024"),
        ({"target": {"kind": "llvm", "mtriple": "riscv64-linux-gnu"}}, "riscv64"),
    ],
)
def test_another_version_or_processor(
    saved: Path, tmp_path: Path, never_mapped: None, change: dict, text: str
) -> None:
    path = rewrite(saved, tmp_path / "other.so", lambda m: dataclasses.replace(m, **change))
    with pytest.raises(IncompatibleArtifact, match=text) as caught:
        relaxc.load(path)
    assert str(path) in str(caught.value)


def test_an_unwritable_path_leaves_nothing(square_model: CompiledModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "no" / "model.so", tmp_path / "file" / "model.so", tmp_path):
        with pytest.raises(InvalidInput, match="cannot write") as caught:
            square_model.save(path)
        assert str(path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failing_export_leaves_the_old_file(
    square_model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.so"
    path.write_text("old")

    def fail(name: str, fcompile: object) -> None:
        Path(name).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(square_model._executable, "export_library", fail)
    with pytest.raises(InvalidInput, match="No space left"):
        square_model.save(path)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["model.so"]


def test_a_replaced_source_is_not_copied(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(saved.read_bytes())
    model = relaxc.load(path)
    rewrite(saved, tmp_path / "new.so", lambda m: dataclasses.replace(m, threads=7)).replace(path)
    with pytest.raises(IncompatibleArtifact, match="replaced"):
        model.save(tmp_path / "copy.so")
    assert not (tmp_path / "copy.so").exists()


def _of(operator: str, path: Path) -> Path:
    """Save a model of a product and an operator."""
    x, y = (helper.make_tensor_value_info(name, 1, [4, 64]) for name in "xy")
    weight = numpy_helper.from_array(np.eye(64, dtype="float32"), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node(operator, ["t"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    return relaxc.compile(model, threads=1).save(path)


def test_a_file_saved_over_a_loaded_one_is_another_model(tmp_path: Path) -> None:
    """The C library would take the second for the first, which has its name."""
    path, x = tmp_path / "model.so", np.full((4, 64), -2, "float32")
    first = relaxc.load(_of("Neg", path))
    np.testing.assert_array_equal(first(x), -x)
    second = relaxc.load(_of("Abs", path))
    np.testing.assert_array_equal(second(x), abs(x))
    np.testing.assert_array_equal(first(x), -x)
    path.unlink()
    np.testing.assert_array_equal(relaxc.load(_of("Relu", path))(x), 0 * x)
    with pytest.raises(relaxc.IncompatibleArtifact, match="replaced"):
        second.save(tmp_path / "copy.so")
    path.unlink()
    with pytest.raises(relaxc.IncompatibleArtifact, match="No such file"):
        second.save(tmp_path / "copy.so")


def test_a_load_sees_one_file_while_others_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = _of("Neg", tmp_path / "model.so"), np.full((4, 64), -2, "float32")
    other = _of("Abs", tmp_path / "other.so")
    check = artifact.check_versions

    def replace_meanwhile(metadata: Metadata, file: Path | None) -> None:
        check(metadata, file)
        other.replace(path)

    monkeypatch.setattr(artifact, "check_versions", replace_meanwhile)
    model = relaxc.load(path)
    np.testing.assert_array_equal(model(x), -x)
