"""The file format of a compiled model: a shared library with a trailer that says what it is.

    | shared library | weights | metadata, JSON | footer, 32 bytes |

    weights: nothing where there are none, see `relaxc.stored_weights`
    footer, little endian: where metadata begin u64 | metadata size u64 | CRC-32 of the metadata u32
                           format version u32 | magic "RELAXCSO"

A loader of shared libraries ignores what follows the library, so the file is both. `load` checks
everything in the trailer before it maps the library: mapping one that is cut short kills the
process (SIGBUS), and code for another CPU does so at its first unknown instruction.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from relaxc.compatibility import check_cpu, check_platform, check_versions
from relaxc.device import has_runtime
from relaxc.errors import IncompatibleArtifact, InvalidModel
from relaxc.mapped_library import shared_library
from relaxc.metadata import Metadata
from relaxc.quiet_stderr import without_stderr_lines
from relaxc.stored_weights import MARKER

if TYPE_CHECKING:
    from relaxc.compiled_model import CompiledModel

FORMAT_VERSION = 2
MAGIC = b"RELAXCSO"
_METADATA_START = b'{"inputs": '
FOOTER = struct.Struct("<QQII8s")

# TVM warns about its own scope names each time it saves or loads an executable.
NOISE = ("Scope Saving", "Scope Loaded")


def load(path: str | Path) -> CompiledModel:
    """Load a model that `CompiledModel.save` wrote.

    One for a device whose runtime is missing here can be looked at, but not called. The file is
    mapped: it may be deleted or replaced while the model lives, but not changed in place.

    Raises:
        InvalidModel: If there is no such file, or it cannot be read.
        IncompatibleArtifact: If the file is not relaxc's (a model that is not compiled yet, for
            example), is cut short, or is for another version, target or CPU. All of it is checked
            before any of its code is mapped.
    """
    path = Path(path).absolute()
    # Read from one open file: another model may be put in its place meanwhile.
    with _opened(path) as file:
        metadata, end = _trailer_of(file, path)
        check_versions(metadata, path)
        check_platform(metadata, path)
        check_cpu(metadata, path)
        from relaxc.compiled_model import CompiledModel

        if not has_runtime(str(metadata.target.get("kind", "llvm"))):
            return CompiledModel(None, metadata, path)
        try:
            with without_stderr_lines(*NOISE):
                library = shared_library(file, path, metadata.weights, end)
        except (RuntimeError, ValueError, OSError) as fault:
            lines = str(fault).strip().splitlines() or [repr(fault)]
            raise IncompatibleArtifact(f"cannot be loaded: {lines[-1]}", file=str(path)) from fault
    return CompiledModel(library.module, metadata, path, library.weights, keep=library)


def read_metadata(path: Path) -> Metadata:
    """Read and check a file's trailer without touching its code.

    Raises:
        InvalidModel: If there is no such file, or it cannot be read.
        IncompatibleArtifact: If the file is not relaxc's, is cut short or damaged, or has another
            format version.
    """
    with _opened(path) as file:
        return _trailer_of(file, path)[0]


def copy_of(path: Path, metadata: Metadata, to: Path) -> None:
    """Copy the file that a model with `metadata` was loaded from.

    Raises:
        IncompatibleArtifact: If it is gone, or another one lies there now.
    """
    try:
        with _opened(path) as file:
            if _trailer_of(file, path)[0].to_bytes() != metadata.to_bytes():
                reason = "the file was replaced since the model was loaded from it"
                raise IncompatibleArtifact(reason, file=str(path))
            file.seek(0)
            with open(to, "wb") as copy:
                shutil.copyfileobj(file, copy)
    except InvalidModel as fault:
        reason = f"the file that the model was loaded from is needed: {fault.message}"
        raise IncompatibleArtifact(reason, file=str(path)) from fault


def _opened(path: Path) -> BinaryIO:
    """Open a compiled model.

    Raises:
        InvalidModel: If it cannot be opened.
    """
    try:
        return open(path, "rb")
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidModel(f"cannot read the compiled model: {reason}", file=str(path)) from fault


def _trailer_of(file: BinaryIO, path: Path) -> tuple[Metadata, int]:
    """Return the checked metadata of an open file (see `read_metadata`), and where they begin."""

    def refuse(reason: str) -> IncompatibleArtifact:
        return IncompatibleArtifact(reason, file=str(path))

    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - FOOTER.size))
        tail = file.read(FOOTER.size)
        if len(tail) < FOOTER.size or tail[-len(MAGIC) :] != MAGIC:
            if _is_cut_short(file, size):
                raise refuse("the file is cut short or damaged")
            raise refuse("not a model compiled by relaxc (relaxc.compile takes ONNX files)")
        body_size, metadata_size, checksum, version, _ = FOOTER.unpack(tail)
        if version != FORMAT_VERSION:
            raise refuse(
                f"written in file format {version}, this relaxc reads {FORMAT_VERSION}: "
                "compile the model again"
            )
        if body_size + metadata_size + FOOTER.size != size:
            raise refuse(
                f"the file is damaged: {size} bytes, its trailer says "
                f"{body_size + metadata_size + FOOTER.size}"
            )
        file.seek(body_size)
        data = file.read(metadata_size)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidModel(f"cannot read the compiled model: {reason}", file=str(path)) from fault
    if zlib.crc32(data) != checksum:
        raise refuse("the file is damaged: its metadata does not match its checksum")
    try:
        return Metadata.from_bytes(data), body_size
    except (ValueError, KeyError, TypeError) as fault:
        raise refuse(f"its metadata cannot be understood: {fault}") from fault


def append_trailer(file: BinaryIO, metadata: Metadata, weights: Sequence[Any]) -> None:
    """Write a model's weights and its trailer to the end of its library."""
    metadata.weights.write(file, weights)
    body_size = file.seek(0, os.SEEK_END)
    data = metadata.to_bytes()
    file.write(data)
    file.write(FOOTER.pack(body_size, len(data), zlib.crc32(data), FORMAT_VERSION, MAGIC))
    file.flush()
    os.fsync(file.fileno())


def _is_cut_short(file: BinaryIO, size: int) -> bool:
    """Tell whether a 64-bit ELF file ends before its section table or its trailer.

    relaxc's files always end in a trailer, so a library without one that ends exactly where ELF
    says is somebody else's; one that our weights or metadata follow has lost its footer.
    """
    file.seek(0)
    header = file.read(64)
    if header[:5] != b"\x7fELF\x02":
        return False
    if len(header) < 64:
        return True
    (table_offset,) = struct.unpack_from("<Q", header, 0x28)
    entry_size, entries = struct.unpack_from("<HH", header, 0x3A)
    end = table_offset + entry_size * entries
    if size < end:
        return True
    file.seek(end)
    return file.read(len(_METADATA_START)).startswith((_METADATA_START, MARKER))
