"""Translate generated CUDA C to C++ and compile it to a shared library the emulator runs."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from tests.cuda.emulator.inline_ptx import replace_inline_ptx

HERE = Path(__file__).parent
HEADERS = HERE / "include"
_FLAGS = ["-std=c++20", "-w", "-O1", "-ffp-contract=off", "-fno-strict-aliasing"]
_FLAGS += ["-fno-threadsafe-statics", "-fvisibility=hidden", "-fPIC"]
# Accesses are counted as wide as the source has them: aggregates must stay whole.
_CHECKED_FLAGS = ["-fsanitize=thread", "-DEMULATOR_CHECKED", "-Og", "-fno-tree-sra"]

_DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?(\w+)\s+(\w+)\[\];")
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)")
_HIDDEN = '__attribute__((weak, visibility("hidden")))'
_EXPORT = 'extern "C" __attribute__((visibility("default")))'


def translate(source: str) -> str:
    """Return C++ that defines `emulator_launch_<kernel>` for every kernel of `source`.

    Raises:
        NotImplementedError: If the source holds inline PTX that is not emulated.
    """
    source = replace_inline_ptx(source)
    # Volatile says that other threads write: here they do so only while this one waits.
    source = _DYNAMIC_SHARED.sub(r"\1* \2 = (\1*)emulator::dynamic_shared;", source)
    source = source.replace("((volatile ", "((").replace(" alignas(", " __align__(")
    source = _name_shared_arrays(source)
    launchers = [_launcher(name, parameters) for name, parameters in _kernels(source).items()]
    exports = [
        f"{_EXPORT} const char* emulator_error() {{ return emulator::error; }}",
        f"{_EXPORT} const void* emulator_traffic() {{ return &emulator::traffic; }}",
    ]
    return "\n".join(['#include "emulator.hpp"', source, *exports, *launchers])


def kernel_parameters(source: str) -> dict[str, list[str]]:
    """Return the names of each kernel's parameters."""
    return {name: [p for _, p in parameters] for name, parameters in _kernels(source).items()}


def _kernels(source: str) -> dict[str, list[tuple[str, str]]]:
    """Return the type and name of each kernel's parameters."""
    found = {}
    for name, text in _KERNEL.findall(source):  # declared, then defined: the last one counts
        text = text.replace("__grid_constant__", "").replace("__restrict__", "")
        pairs = [re.fullmatch(r"(.*?)(\w+)", p.strip()) for p in text.split(",") if p.strip()]
        found[name] = [(pair[1].strip(), pair[2]) for pair in pairs if pair]
    return found


def _name_shared_arrays(source: str) -> str:
    """Mark each static shared array with the kernel it stands in."""
    at, done = 0, ""
    kernel = ""
    for match in _KERNEL.finditer(source):
        done += source[at : match.start()].replace("__shared__", f"EMULATED_SHARED({kernel})")
        at, kernel = match.start(), match[1]
    return done + source[at:].replace("__shared__", f"EMULATED_SHARED({kernel})")


def _launcher(name: str, parameters: list[tuple[str, str]]) -> str:
    """Return the exported function that unpacks a launch's arguments and runs the kernel."""
    unpacked = ", ".join(
        f"*(std::remove_const_t<{kind}>*)arguments[{at}]" for at, (kind, _) in enumerate(parameters)
    )
    begin, end = f"__start_shared_{name}", f"__stop_shared_{name}"
    sizes = "".join(f"sizeof({kind}), " for kind, _ in parameters)
    return (
        f"{_EXPORT} const unsigned emulator_argument_bytes_{name}[] = {{{sizes}0}};\n"
        f'extern "C" char {begin}[] {_HIDDEN}, {end}[] {_HIDDEN};\n'
        f"static void emulator_body_{name}(void** arguments) {{ {name}({unpacked}); }}\n"
        f"{_EXPORT} int emulator_launch_{name}(void** arguments, const unsigned* grid,\n"
        f"    const unsigned* block, unsigned dynamic) {{\n"
        f"  return emulator::launch(emulator_body_{name}, {{{begin}, {end}}}, arguments, grid,\n"
        f"                          block, dynamic);\n}}\n"
    )


def compile_kernel(source: str, folder: Path, checked: bool = False) -> Path:
    """Compile CUDA C with g++ into `folder`, once; return the library's path.

    Args:
        source: What TVM generated.
        folder: Where the library goes, under a name made of what it is made of.
        checked: See every access: races, unwritten shared memory, bytes, bank conflicts.

    Raises:
        RuntimeError: If g++ fails; the text is its standard error.
    """
    translated = translate(source)
    flags = [*_FLAGS, *(_CHECKED_FLAGS if checked else [])]
    compiled_headers = _compile_headers(folder, flags)
    base = compiled_headers.with_name(f"{compiled_headers.name}_{_digest(translated)}")
    unit, objects, library = (base.with_suffix(suffix) for suffix in (".cpp", ".o", ".so"))
    if not library.exists():
        unit.write_text(translated)
        include = [f"-I{compiled_headers}", f"-I{HEADERS}"]
        _run(["g++", *flags, "-c", *include, "-o", str(objects), str(unit)])
        # Linked without -fsanitize: access_hooks.hpp stands in for the sanitizer's library.
        _run(["g++", "-shared", "-o", str(library), str(objects)])
    return library


def _compile_headers(folder: Path, flags: list[str]) -> Path:
    """Compile the headers for `flags`, once; return where g++ finds them before their text.

    Parsing them is most of what compiling a small kernel takes.
    """
    texts = [header.read_text() for header in sorted(HEADERS.glob("*.h*"))]
    compiled = folder / _digest("".join([*flags, *texts]))
    header = compiled / "emulator.hpp.gch"
    if not header.exists():
        compiled.mkdir(exist_ok=True)
        source = HEADERS / "emulator.hpp"
        _run(["g++", *flags, "-x", "c++-header", "-o", str(header), str(source)])
    return compiled


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_c_library(sources: list[str], library: Path, *flags: str) -> None:
    """Build C files of this folder into a shared library."""
    command = ["gcc", "-O1", "-w", "-shared", "-fPIC", *flags, "-o", str(library)]
    _run([*command, *(str(HERE / name) for name in sources), "-ldl"])


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{ran.stderr[:3000]}")
