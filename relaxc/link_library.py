"""Link a model's object files: for this machine, for another processor, or there, later.

A model for another processor needs a linker that knows it. One is looked for in this order: the
command in RELAXC_CXX; a cross compiler such as `aarch64-linux-gnu-g++`; Zig, by itself or from the
package `ziglang`. Where there is none the object files can be saved (`model.tar`) and linked on the
machine they are for: `relaxc link model.tar`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from relaxc.errors import IncompatibleArtifact, InvalidInput, InvalidModel, UnsupportedTarget

ARCHIVE = ".tar"
METADATA = "relaxc.json"  # in an archive, beside the object files
WEIGHTS = "weights.bin"  # as they follow a library
_ALIASES = {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}

# What TVM calls with the library to write and the object files.
Linker = Callable[[str, Sequence[str]], None]


def is_archive(path: Path) -> bool:
    """Tell whether a file of that name holds object files instead of a library."""
    return path.suffix == ARCHIVE


def architecture(triple: str) -> str:
    """Return the architecture in an LLVM triple, or the name of one, by its usual name."""
    first = triple.split("-")[0]
    return _ALIASES.get(first, first)


def host_triple(target: Mapping[str, Any]) -> str:
    """Return the triple of the processor a model runs or is driven by, "" for this machine's."""
    host = target.get("host") or target
    return str(host.get("mtriple", "")) if host.get("kind") == "llvm" else ""


def linker_of(target: Mapping[str, Any]) -> Linker | None:
    """Return what links a target's object files; None is TVM's own way, for this machine.

    Raises:
        UnsupportedTarget: If nothing here links for the target's processor.
    """
    triple = host_triple(target)
    wanted = architecture(triple) if triple else ""
    if wanted in ("", architecture(platform.machine())):
        return None
    command = _cross_compiler(wanted)
    if command is None:
        raise UnsupportedTarget(
            f"nothing here links for {wanted}: set RELAXC_CXX, install g++-{wanted}-linux-gnu or "
            f"the package ziglang; or save a .tar and run `relaxc link` on the {wanted} machine"
        )

    def link(library: str, objects: Sequence[str]) -> None:
        link_objects(command, library, objects)

    return link


def link_objects(command: Sequence[str], library: str, objects: Sequence[str]) -> None:
    """Link object files into a shared library.

    Raises:
        UnsupportedTarget: If the command fails; the text is its last line.
    """
    line = [*command, "-shared", "-fPIC", "-o", library, *objects]
    try:
        ran = subprocess.run(line, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise UnsupportedTarget(f"cannot link with {command[0]}: {fault.strerror}") from fault
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines() or [f"exit code {ran.returncode}"]
        raise UnsupportedTarget(f"{shlex.join(command)} does not link the model: {lines[-1]}")


def pack_objects(metadata: bytes, write_weights: Callable[[BinaryIO], None]) -> Linker:
    """Return a "linker" that puts object files, metadata and weights into an archive."""

    def pack(archive: str, objects: Sequence[str]) -> None:
        described, weights = (Path(archive).with_name(name) for name in (METADATA, WEIGHTS))
        described.write_bytes(metadata)
        with open(weights, "wb") as file:
            write_weights(file)
        with tarfile.open(archive, "w") as tar:
            for path in (described, weights, *map(Path, objects)):
                tar.add(path, arcname=path.name)

    return pack


def unpack_objects(archive: Path, folder: Path) -> tuple[bytes, Path, list[str]]:
    """Extract an archive's files; return the metadata, and the paths of weights and object files.

    Raises:
        InvalidModel: If there is no such archive, or it is none of a model.
        IncompatibleArtifact: If an earlier version wrote it.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            names = [member.name for member in tar.getmembers() if member.isfile()]
            objects = [name for name in names if name.endswith((".o", ".c"))]
            if METADATA in names and WEIGHTS not in names:
                raise IncompatibleArtifact(
                    "holds no weights: another relaxc wrote it, compile the model again",
                    file=str(archive),
                )
            if METADATA not in names or not objects or any("/" in name for name in names):
                raise InvalidModel("holds no object files of a model", file=str(archive))
            for name in (METADATA, WEIGHTS, *objects):
                found = tar.extractfile(name)
                assert found is not None
                with open(folder / name, "wb") as file:
                    shutil.copyfileobj(found, file)
    except (OSError, tarfile.TarError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise InvalidModel(f"cannot read the object files: {reason}", file=str(archive)) from fault
    paths = [str(folder / name) for name in objects]
    return (folder / METADATA).read_bytes(), folder / WEIGHTS, paths


def native_compiler() -> list[str]:
    """Return the command that links for this machine.

    Raises:
        InvalidInput: If there is no C++ compiler.
    """
    for name in (os.environ.get("RELAXC_CXX", ""), os.environ.get("CXX", ""), "g++", "clang++"):
        if name and shutil.which(shlex.split(name)[0]):
            return shlex.split(name)
    raise InvalidInput("there is no C++ compiler to link with: set RELAXC_CXX")


def _cross_compiler(wanted: str) -> list[str] | None:
    """Return the command that links for an architecture under Linux, None if there is none."""
    given = os.environ.get("RELAXC_CXX")
    if given:
        return shlex.split(given)
    for name in (f"{wanted}-linux-gnu-g++", f"{wanted}-linux-gnu-gcc"):
        if shutil.which(name):
            return [name]
    # The objects have C linkage: `c++` would first build a C++ library of its own.
    zig = ["cc", "-target", f"{wanted}-linux-gnu"]
    if shutil.which("zig"):
        return ["zig", *zig]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", *zig]
    return None
