"""Whether a compiled model is for the versions, the system and the processor that are here."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from relaxc.errors import IncompatibleArtifact
from relaxc.link_library import architecture, host_triple
from relaxc.metadata import Metadata

# Processor features that change which instructions the compiler may emit; the others that LLVM
# lists are tuning hints and system instructions.
_ISA_PREFIXES = (
    *("sse", "ssse3", "avx", "fma", "f16c", "bmi", "popcnt", "lzcnt", "movbe", "amx", "gfni"),
    *("vaes", "vpclmulqdq", "neon", "sve", "sme", "dotprod", "fullfp16", "i8mm", "bf16"),
)


def isa_features(target: Any) -> tuple[str, ...]:
    """Return the instruction-set features that an LLVM target lets the compiler use."""
    from tvm.target import codegen

    if target.kind.name != "llvm":
        return ()
    features = codegen.llvm_get_cpu_features(target)
    return tuple(sorted(str(f) for f in features if str(f).startswith(_ISA_PREFIXES)))


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
