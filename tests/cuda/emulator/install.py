"""Make `tvm.cuda(0)` exist on a machine without a GPU; call `install` before tvm is imported."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.cuda.emulator.compile_kernel import build_c_library, compile_kernel

DRIVER = "libcuda.so.1"
RUNTIME = "libcudart.so.13"


def build_libraries(folder: Path) -> list[Path]:
    """Build the two fake CUDA libraries into `folder`; return their paths."""
    versions = folder / "runtime.map"
    versions.write_text(f"{RUNTIME} {{ global: *; }};\n")
    built = []
    for name, flags in [
        (DRIVER, ["-DDRIVER"]),
        (RUNTIME, [f"-Wl,--version-script={versions}"]),
    ]:
        path = folder / name
        sources = ["fake_cuda.c"] if name == DRIVER else ["fake_cuda.c", "guarded_memory.c"]
        build_c_library(sources, path, f"-Wl,-soname,{name}", *flags)
        built.append(path)
    return built


def install() -> None:
    """Load the fake libraries and let TVM compile CUDA C for the emulator.

    With EMULATOR_CHECKED in the environment, kernels compiled from then on are checked.

    Raises:
        RuntimeError: If tvm is imported already, and with it the absence of CUDA.
    """
    if "tvm" in sys.modules:
        raise RuntimeError("install the emulator before tvm is imported")
    folder = Path(tempfile.mkdtemp(prefix="cuda_emulator_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for library in build_libraries(folder):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    import tvm
    import tvm_ffi

    def compile_cuda(source: str) -> bytes:
        checked = bool(os.environ.get("EMULATOR_CHECKED"))
        return f"EMULATOR:{compile_kernel(source, folder, checked)}".encode() + b"\0"

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", compile_cuda, override=True)
    if not tvm.cuda(0).exist:
        raise RuntimeError("tvm does not see the emulated device")
