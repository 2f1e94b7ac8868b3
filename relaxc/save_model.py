"""Write a compiled model: a library with a trailer, or the object files to link one from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from relaxc.artifact import NOISE, append_trailer, copy_of
from relaxc.compatibility import check_platform
from relaxc.errors import IncompatibleArtifact, InvalidInput, UnsupportedTarget
from relaxc.link_library import (
    is_archive,
    link_objects,
    linker_of,
    native_compiler,
    pack_objects,
    unpack_objects,
)
from relaxc.metadata import Metadata
from relaxc.quiet_stderr import without_stderr_lines


def save_model(
    executable: Any,
    metadata: Metadata,
    weights: Sequence[Any],
    path: Path,
    loaded_from: Path | None,
) -> Path:
    """Write an executable with its metadata to `path`, all or nothing.

    Args:
        executable: A `tvm.relax.VMExecutable`; unused for a model that came from a file.
        metadata: What the trailer says.
        weights: The tensors that it describes.
        path: Where to write; an existing file is replaced. `.tar` gets object files, for `link`;
            any other name a library.
        loaded_from: The file the model was loaded from, which is copied.

    Raises:
        InvalidInput: If `path` cannot be written, or asks a loaded model for object files.
        UnsupportedTarget: If the library is for another processor and nothing here links for it.
        IncompatibleArtifact: If the file the model was loaded from is gone or was replaced.
    """
    archive = is_archive(path)
    if loaded_from is not None:
        if archive:
            raise InvalidInput("a model that was loaded has no object files", file=str(path))

        def write(temporary: Path) -> None:
            copy_of(loaded_from, metadata, temporary)

        return _write(path, write)
    if metadata.target.get("kind") == "rocm":
        _check_linked()

    def write_weights(file: BinaryIO) -> None:
        metadata.weights.write(file, weights)

    linker = (
        pack_objects(metadata.to_bytes(), write_weights) if archive else linker_of(metadata.target)
    )

    def export(temporary: Path) -> None:
        with without_stderr_lines(*NOISE):
            executable.export_library(str(temporary), fcompile=linker)
        if not archive:
            _append(temporary, metadata, weights)

    return _write(path, export)


def link(archive: str | Path, path: str | Path) -> Path:
    """Link the object files that `CompiledModel.save("model.tar")` wrote, on their machine.

    Raises:
        InvalidModel: If `archive` is missing or holds no object files of a model.
        IncompatibleArtifact: If they are for another processor than this one, or damaged.
        InvalidInput: If there is no compiler, or `path` cannot be written.
        UnsupportedTarget: If the compiler fails.
    """
    archive = Path(archive)
    with tempfile.TemporaryDirectory(prefix="relaxc-") as folder:
        data, stored, objects = unpack_objects(archive, Path(folder))
        try:
            metadata = Metadata.from_bytes(data)
        except (ValueError, KeyError, TypeError) as fault:
            raise IncompatibleArtifact(
                f"its metadata cannot be understood: {fault}", file=str(archive)
            ) from fault
        check_platform(metadata, archive)
        size = stored.stat().st_size
        if size != metadata.weights.nbytes_alone:
            raise IncompatibleArtifact(
                f"its weights are damaged: {size} bytes instead of {metadata.weights.nbytes_alone}",
                file=str(archive),
            )

        def write(temporary: Path) -> None:
            link_objects(native_compiler(), str(temporary), objects)
            with open(stored, "rb") as file:
                weights = metadata.weights.map(file, size)
            _append(temporary, metadata, weights)

        return _write(Path(path), write)


def _write(path: Path, write: Callable[[Path], None]) -> Path:
    """Have `write` make a file beside `path`, and put it there when it is whole."""
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            # The library itself must not be called .tmp: the suffix decides what TVM writes.
            temporary = Path(folder) / "model.so"
            write(temporary)
            os.replace(temporary, path)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidInput(f"cannot write the compiled model: {reason}", file=str(path)) from fault
    return path


def _check_linked() -> None:
    """Refuse kernels that could not be linked.

    Raises:
        UnsupportedTarget: If there is no ROCm.
    """
    from relax_passes.rocm_libraries import has_rocm

    if not has_rocm():
        raise UnsupportedTarget(
            "there is no ROCm here to link kernels with, only their sources can be had: install "
            "ROCm with ld.lld, or take model.device_sources() or relaxc compile --sources"
        )


def _append(library: Path, metadata: Metadata, weights: Sequence[Any]) -> None:
    with open(library, "ab") as file:
        append_trailer(file, metadata, weights)
