"""Translate generated CUDA C to C++ and compile it to a shared library the emulator runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
_FLAGS = ["-std=c++20", "-w", "-O1", "-ffp-contract=off", "-fno-strict-aliasing"]
_FLAGS += ["-fno-threadsafe-statics", "-fvisibility=hidden", "-fPIC"]
_RACE_FLAGS = ["-fsanitize=thread", "-DEMULATOR_RACE"]

_DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?(\w+)\s+(\w+)\[\];")
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)")
_EXPORT = 'extern "C" __attribute__((visibility("default")))'


def translate(source: str) -> str:
    """Return C++ that defines `emulator_launch_<kernel>` for every kernel of `source`.

    Raises:
        NotImplementedError: If the source holds inline PTX.
    """
    if re.search(r"\b(?:__asm__|asm)\s*(?:volatile|__volatile__)?\s*\(", source):
        raise NotImplementedError("the emulator does not run inline PTX")
    # Volatile says that other threads write: here they do so only while this one waits.
    source = _DYNAMIC_SHARED.sub(r"\1* \2 = (\1*)emulator::dynamic_shared;", source)
    source = source.replace("((volatile ", "((").replace(" alignas(", " __align__(")
    # A kernel is declared, then defined: the last match counts.
    kernels = dict(_KERNEL.findall(source))
    launchers = [_launcher(name, parameters) for name, parameters in kernels.items()]
    error = f"{_EXPORT} const char* emulator_error() {{ return emulator::error; }}\n"
    return "\n".join(['#include "emulator.hpp"', source, error, *launchers])


def _launcher(name: str, parameters: str) -> str:
    """Return the exported function that unpacks a launch's arguments and runs the kernel."""
    types = []
    for parameter in filter(None, map(str.strip, parameters.split(","))):
        parameter = parameter.replace("__grid_constant__", "").replace("__restrict__", "")
        types.append(re.sub(r"\w+$", "", parameter.strip()).strip())
    unpacked = ", ".join(
        f"*(std::remove_const_t<{kind}>*)arguments[{at}]" for at, kind in enumerate(types)
    )
    return (
        f"static void emulator_body_{name}(void** arguments) {{ {name}({unpacked}); }}\n"
        f"{_EXPORT} int emulator_launch_{name}(void** arguments, const unsigned* grid,\n"
        f"    const unsigned* block, unsigned dynamic) {{\n"
        f"  return emulator::launch(emulator_body_{name}, arguments, grid, block, dynamic);\n}}\n"
    )


def compile_kernel(source: str, folder: Path) -> Path:
    """Compile CUDA C with g++ into `folder`; return the library's path.

    Raises:
        RuntimeError: If g++ fails; the text is its standard error.
    """
    translated = translate(source)
    flags = [*_FLAGS, *(_RACE_FLAGS if os.environ.get("EMULATOR_RACE") else [])]
    digest = hashlib.sha256((translated + " ".join(flags)).encode()).hexdigest()[:16]
    unit, objects = folder / f"{digest}.cpp", folder / f"{digest}.o"
    library = folder / f"{digest}.so"
    unit.write_text(translated)
    include = f"-I{HERE / 'include'}"
    _run(["g++", *flags, "-c", include, "-o", str(objects), str(unit)])
    # Linked without -fsanitize: race.hpp stands in for the sanitizer's library.
    _run(["g++", "-shared", "-o", str(library), str(objects)])
    return library


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{ran.stderr[:3000]}")
