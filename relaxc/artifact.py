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

import dataclasses
import json
import os
import platform
import shutil
import struct
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from frontends.imported_model import TensorSpec
from relaxc.buckets import Buckets
from relaxc.device import has_runtime
from relaxc.errors import IncompatibleArtifact, InvalidModel
from relaxc.link_library import architecture, host_triple
from relaxc.preparation import Preparation
from relaxc.quiet_stderr import without_stderr_lines
from relaxc.report import Report
from relaxc.stored_weights import MARKER, WeightTable

if TYPE_CHECKING:
    from relaxc.compiled_model import CompiledModel

FORMAT_VERSION = 2
MAGIC = b"RELAXCSO"
_METADATA_START = b'{"inputs": '
FOOTER = struct.Struct("<QQII8s")

# TVM warns about its own scope names each time it saves or loads an executable.
NOISE = ("Scope Saving", "Scope Loaded")

# Processor features that change which instructions the compiler may emit; the others that LLVM
# lists are tuning hints and system instructions.
_ISA_PREFIXES = (
    *("sse", "ssse3", "avx", "fma", "f16c", "bmi", "popcnt", "lzcnt", "movbe", "amx", "gfni"),
    *("vaes", "vpclmulqdq", "neon", "sve", "sme", "dotprod", "fullfp16", "i8mm", "bf16"),
)


@dataclass(frozen=True)
class Metadata:
    """What the trailer holds.

    `target` is TVM's target dict, `cpu_features` are LLVM's names of the instruction sets the
    code may use (empty for other targets), `tvm_version` and `relaxc_version` wrote the file,
    `buckets` are the sizes that it holds versions of the model for, `ranges` the least and the
    greatest size (None: no bound) that were promised for symbolic dimensions, by name,
    `preparation` tells which inputs are prepared by a function of their own, `states` which inputs
    the model holds itself: pairs of an input and the output that is its next value, by number,
    `weights` what lies beside the library.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    target: dict[str, Any]
    cpu_features: tuple[str, ...]
    threads: int
    tvm_version: str
    relaxc_version: str
    report: Report
    buckets: Buckets = Buckets()
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    preparation: Preparation | None = None
    states: tuple[tuple[int, int], ...] = ()
    weights: WeightTable = WeightTable()

    def to_bytes(self) -> bytes:
        """Return the metadata as UTF-8 JSON."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["inputs"] = [spec.to_json() for spec in self.inputs]
        data["outputs"] = [spec.to_json() for spec in self.outputs]
        data["report"] = self.report.to_dict()
        data["buckets"] = self.buckets.to_json()
        data["weights"] = self.weights.to_json()
        data["preparation"] = self.preparation and dataclasses.asdict(self.preparation)
        return json.dumps(data).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Metadata:
        """Rebuild the metadata from `to_bytes`' JSON.

        Raises:
            ValueError, KeyError, TypeError: If it is not what `to_bytes` writes.
        """
        fields = json.loads(data)
        fields["inputs"] = tuple(TensorSpec.from_json(spec) for spec in fields["inputs"])
        fields["outputs"] = tuple(TensorSpec.from_json(spec) for spec in fields["outputs"])
        fields["cpu_features"] = tuple(fields["cpu_features"])
        fields["report"] = Report.from_dict(fields["report"])
        fields["buckets"] = Buckets.from_json(fields["buckets"])
        ranges = fields.get("ranges", {})  # older files have none
        fields["ranges"] = {name: (least, most) for name, (least, most) in ranges.items()}
        fields["preparation"] = Preparation.from_json(fields.get("preparation"))
        fields["weights"] = WeightTable.from_json(fields["weights"])
        fields["states"] = tuple((given, result) for given, result in fields.get("states", []))
        return Metadata(**fields)


def isa_features(target: Any) -> tuple[str, ...]:
    """Return the instruction-set features that an LLVM target lets the compiler use."""
    from tvm.target import codegen

    if target.kind.name != "llvm":
        return ()
    features = codegen.llvm_get_cpu_features(target)
    return tuple(sorted(str(f) for f in features if str(f).startswith(_ISA_PREFIXES)))


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
        metadata = _metadata_of(file, path)
        check_versions(metadata, path)
        check_platform(metadata, path)
        check_cpu(metadata, path)
        from relaxc.compiled_model import CompiledModel

        if not has_runtime(str(metadata.target.get("kind", "llvm"))):
            return CompiledModel(None, metadata, path)
        try:
            with without_stderr_lines(*NOISE):
                library = _shared_library(file, metadata.weights, path)
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
        return _metadata_of(file, path)


def copy_of(path: Path, metadata: Metadata, to: Path) -> None:
    """Copy the file that a model with `metadata` was loaded from.

    Raises:
        IncompatibleArtifact: If it is gone, or another one lies there now.
    """
    try:
        with _opened(path) as file:
            if _metadata_of(file, path).to_bytes() != metadata.to_bytes():
                reason = "the file was replaced since the model was loaded from it"
                raise IncompatibleArtifact(reason, file=str(path))
            file.seek(0)
            with open(to, "wb") as copy:
                shutil.copyfileobj(file, copy)
    except InvalidModel as fault:
        reason = f"the file that the model was loaded from is needed: {fault.message}"
        raise IncompatibleArtifact(reason, file=str(path)) from fault


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a compiled model.

    Raises:
        InvalidModel: If it cannot be opened, or reading it within the block fails.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below, faults of the block are its own)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidModel(f"cannot read the compiled model: {reason}", file=str(path)) from fault
    with file:
        yield file


def _metadata_of(file: BinaryIO, path: Path) -> Metadata:
    """Read and check the trailer of an open file, see `read_metadata`."""

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
        return Metadata.from_bytes(data)
    except (ValueError, KeyError, TypeError) as fault:
        raise refuse(f"its metadata cannot be understood: {fault}") from fault


def check_versions(metadata: Metadata, path: Path | None) -> None:
    """Refuse a model written by another relaxc or for another TVM.

    Raises:
        IncompatibleArtifact: If the major or minor version of either differs.
    """
    import relaxc

    pairs = (
        ("relaxc", metadata.relaxc_version, relaxc.__version__),
        ("TVM", metadata.tvm_version, installed_tvm_version()),
    )
    for name, written, here in pairs:
        if written.split(".")[:2] != here.split(".")[:2]:
            raise IncompatibleArtifact(
                f"compiled with {name} {written}, here is {name} {here}: compile the model again",
                file=str(path) if path else None,
            )


def check_platform(metadata: Metadata, path: Path | None) -> None:
    """Refuse code for another processor architecture or operating system.

    Raises:
        IncompatibleArtifact: If the target's triple names another one.
    """
    triple = host_triple(metadata.target)
    if not triple:
        return
    arch, here = architecture(triple), architecture(platform.machine())
    if arch != here:
        raise IncompatibleArtifact(
            f"compiled for a {arch} processor, this is {here}", file=str(path) if path else None
        )
    system = platform.system().lower()
    if system not in triple and not (system == "darwin" and "apple" in triple):
        raise IncompatibleArtifact(
            f"compiled for {triple}, this is {system}", file=str(path) if path else None
        )


def check_cpu(metadata: Metadata, path: Path | None) -> None:
    """Refuse code that uses instructions this processor lacks.

    Raises:
        IncompatibleArtifact: Naming the missing features.
    """
    if not metadata.cpu_features:
        return
    from tir_schedules.machine import host_target

    missing = sorted(set(metadata.cpu_features) - set(isa_features(host_target())))
    if missing:
        raise IncompatibleArtifact(
            f"compiled for another CPU ({metadata.target.get('mcpu', 'unknown')}): this one lacks "
            f"{', '.join(missing)}",
            file=str(path) if path else None,
        )


def installed_tvm_version() -> str:
    """Return the version of the installed TVM without importing it."""
    from importlib import metadata

    return metadata.version("apache-tvm")


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


class _Library:
    """A mapped file; models loaded from it share its code and weights."""

    def __init__(self, module: Any, weights: Sequence[Any]) -> None:
        self.module, self.weights = module, weights


_mapped: weakref.WeakValueDictionary[tuple[int, ...], _Library] = weakref.WeakValueDictionary()
_mapping = threading.Lock()


def _shared_library(file: BinaryIO, table: WeightTable, path: Path) -> _Library:
    """Return the library of an open file, mapped once while any model uses it.

    A file written anew is another one, whatever its name.
    """
    state = os.fstat(file.fileno())
    key = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
    with _mapping:
        library = _mapped.get(key)
        if library is None:
            weights = table.map(file, _body_size(file))
            library = _mapped[key] = _Library(_map_library(file, path), weights)
        return library


def _body_size(file: BinaryIO) -> int:
    """Return where a file's metadata begin."""
    file.seek(-FOOTER.size, os.SEEK_END)
    return int(FOOTER.unpack(file.read(FOOTER.size))[0])


def _map_library(file: BinaryIO, path: Path) -> Any:
    """Load the library in an open file by a name that no library had before.

    The C library takes a name that it has loaded for the same library, even if another file lies
    there by now; TVM never unloads one, and picks its loader by the suffix.
    """
    import tvm_ffi

    opened = Path(f"/proc/self/fd/{file.fileno()}")
    with tempfile.TemporaryDirectory(prefix="relaxc-") as folder:
        link = Path(folder) / "model.so"
        link.symlink_to(opened if opened.exists() else path)
        return tvm_ffi.load_module(str(link))
