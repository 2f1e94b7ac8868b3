"""Models for GPUs and processors that are not here: built, saved, linked, loaded, refused."""

from __future__ import annotations

import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

import relaxc
from relaxc import cli, link_library
from relaxc.errors import IncompatibleArtifact, InvalidInput, InvalidModel, UnsupportedTarget
from relaxc.targets import resolve_target

ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
_AARCH64 = 183  # EM_AARCH64 in ELF's e_machine


def _model(target: str | Mapping[str, Any]) -> relaxc.CompiledModel:
    x = relax.Var("x", R.Tensor((3, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.nn.relu(x)))
        builder.emit_func_output(y)
    return relaxc.compile(builder.get(), target=target)


@pytest.fixture(scope="module")
def for_arm() -> relaxc.CompiledModel:
    return _model({"kind": "cuda", "arch": "sm_90", "host": "aarch64-linux-gnu"})


def _machine_of(path: Path) -> int:
    data = path.read_bytes()[:20]
    assert data[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", data, 18)[0])


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_a_model_for_an_absent_gpu_loads_and_says_so_when_it_runs(
    arch: str, tmp_path: Path
) -> None:
    if tvm.cuda().exist:
        pytest.skip("there is a GPU")
    model = _model({"kind": "cuda", "arch": arch})
    with pytest.raises(IncompatibleArtifact, match=rf"cuda \({arch}\).*no such device"):
        model(X)
    loaded = relaxc.load(model.save(tmp_path / "model.so"))
    assert loaded.target["arch"] == arch
    assert loaded.inputs == model.inputs
    assert loaded.report.kernels == model.report.kernels
    with pytest.raises(IncompatibleArtifact, match=r"no such device \(file '.*model.so'\)"):
        loaded(X)
    copy = relaxc.load(loaded.save(tmp_path / "copy.so"))
    assert copy.target == loaded.target


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"kind": "cuda", "arch": "sm_99"}, "no CUDA architecture 'sm_99'; such as sm_90"),
        ({"kind": "cuda", "arch": "80"}, "no CUDA architecture '80'; such as sm_80 would do"),
        ({"kind": "cuda", "arch": "ampere"}, "such as sm_80, sm_86, sm_89, sm_90"),
        ({"kind": "cuda", "host": "arm9-linux"}, "no processor 'arm9'; such as arm"),
        ({**ARM, "mcpu": "neoverse-n9"}, "'neoverse-n9' for aarch64-linux-gnu; such as neoverse-n"),
        ({"kind": "llvm", "mcpu": "znver9"}, "such as znver"),
        ("graphics", "unknown target 'graphics'"),
        ({"kind": "cuda", "speed": 3}, "unknown target"),
    ],
)
def test_targets_that_are_not_there(target: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        resolve_target(target, 1)


@pytest.mark.parametrize("kind", ["vulkan", "nvptx", "hexagon"])
def test_kinds_without_rules_are_unsupported(kind: str) -> None:
    with pytest.raises(UnsupportedTarget, match="there are llvm, cuda, opencl"):
        resolve_target(kind, 1)


def test_what_tvm_cannot_generate_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_ffi.get_global_func", lambda name, allow_missing: None)
    with pytest.raises(UnsupportedTarget, match="no code generator for 'opencl'"):
        resolve_target("opencl", 1)


def test_the_host_of_a_gpu_may_be_another_processor(for_arm: relaxc.CompiledModel) -> None:
    assert for_arm.target["host"]["mtriple"] == "aarch64-linux-gnu"
    with pytest.raises(IncompatibleArtifact, match="compiled for a aarch64 processor"):
        for_arm(X)


def test_without_a_cross_compiler_the_object_files_can_be_saved(
    for_arm: relaxc.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_library, "_cross_compiler", lambda wanted: None)
    with pytest.raises(UnsupportedTarget, match="nothing here links for aarch64.*save a .tar"):
        for_arm.save(tmp_path / "model.so")
    assert not list(tmp_path.iterdir())
    archive = for_arm.save(tmp_path / "model.tar")
    *_, objects = link_library.unpack_objects(archive, tmp_path)
    assert {_machine_of(Path(path)) for path in objects} == {_AARCH64}
    with pytest.raises(IncompatibleArtifact, match="for a aarch64 processor"):
        relaxc.link(archive, tmp_path / "model.so")


def test_a_cross_compiler_links_the_library(
    for_arm: relaxc.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELAXC_CXX", raising=False)
    if link_library._cross_compiler("aarch64") is None:
        pytest.skip("no cross compiler for aarch64: pip install ziglang brings one")
    library = for_arm.save(tmp_path / "model.so")
    assert _machine_of(library) == _AARCH64
    with pytest.raises(IncompatibleArtifact, match="for a aarch64 processor"):
        relaxc.load(library)


def test_the_linker_that_the_environment_names_is_used(
    for_arm: relaxc.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker = tmp_path / "linker"
    linker.write_text('#!/bin/sh\necho "cannot find crti.o" >&2\nexit 1\n')
    linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("RELAXC_CXX", f"{linker} --sysroot=/arm")
    with pytest.raises(UnsupportedTarget, match=r"linker --sysroot=/arm does not link.*crti.o"):
        for_arm.save(tmp_path / "model.so")
    monkeypatch.setenv("RELAXC_CXX", str(tmp_path / "nothing"))
    with pytest.raises(UnsupportedTarget, match="cannot link with .*nothing: No such file"):
        for_arm.save(tmp_path / "model.so")


def test_object_files_become_a_model_where_they_are_linked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = _model("llvm").save(tmp_path / "model.tar")
    assert cli.main(["link", str(archive)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "model.so")
    loaded = relaxc.load(tmp_path / "model.so")
    np.testing.assert_array_equal(loaded(X), np.maximum(X, 0))
    with pytest.raises(InvalidInput, match="was loaded has no object files"):
        loaded.save(tmp_path / "again.tar")


@pytest.mark.parametrize("content", [None, b"no archive", b""])
def test_what_holds_no_object_files_is_refused(content: bytes | None, tmp_path: Path) -> None:
    archive = tmp_path / "model.tar"
    if content is not None:
        archive.write_bytes(content)
    with pytest.raises(InvalidModel, match="model.tar"):
        relaxc.link(archive, tmp_path / "model.so")
    assert not (tmp_path / "model.so").exists()


def test_a_newer_gpu_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxc import device

    class Device:
        exist, compute_version = True, "8.6"

    monkeypatch.setattr(device, "has_runtime", lambda kind: True)
    monkeypatch.setattr(device.tvm.runtime, "device", lambda kind, number: Device())
    assert device.device_of({"kind": "cuda", "arch": "sm_80"}, None).exist
    with pytest.raises(IncompatibleArtifact, match="compiled for sm_90, the device here is sm_86"):
        device.device_of({"kind": "cuda", "arch": "sm_90"}, None)
