"""Compile generated CUDA C with nvcc, no GPU needed, and read what ptxas reports per kernel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi
from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules.gpu import Gpu

SM_80_OPTIONS = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
}
SM_80 = Target(SM_80_OPTIONS)


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes of a multiprocessor; sizes in bytes, registers per thread."""

    registers: int
    stack: int
    spills: int  # stores and loads
    shared: int  # static shared memory

    def resident_warps(self, threads: int, arch: str = "sm_80", dynamic: int = 0) -> int:
        """Return how many warps of the kernel a multiprocessor holds at a time: its occupancy.

        Args:
            threads: Of a block.
            arch: Of the GPU, whose multiprocessors hold 48 or 64 warps.
            dynamic: Bytes of dynamic shared memory of a block.
        """
        gpu = Gpu.from_arch(arch)
        together = gpu.blocks_together(threads, self.registers, self.shared + dynamic)
        return together * threads // 32


def find_tool(name: str) -> str | None:
    """Return a CUDA tool's path: from PATH, from CUDA_HOME, or from its package on PyPI."""
    if found := shutil.which(name):
        return found
    roots = [Path(os.environ[home]) for home in ("CUDA_HOME", "CUDA_PATH") if home in os.environ]
    spec = importlib.util.find_spec("nvidia")
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            roots += [p.parent.parent for p in Path(folder).glob(f"*/bin/{name}")]
    return next((str(r / "bin" / name) for r in roots if (r / "bin" / name).exists()), None)


def cuda_source(functions: dict[str, PrimFunc], target: Target = SM_80, *, cse: bool = True) -> str:
    """Return the CUDA C of scheduled functions as one translation unit.

    `cse`: common subexpressions are computed once, those of sizes by the host for all kernels.
    """
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    config = {} if cse else {"tirx.disable_cse_tir": True}
    with no_compiler(), tvm.transform.PassContext(config=config):
        library = tvm.compile(tvm.IRModule(named), target=target)
    return str(library.mod.imports[0].inspect_source("cuda"))


@contextmanager
def no_compiler() -> Iterator[None]:
    """Let TVM keep its CUDA C as it is: nvcc would take seconds for what nobody loads."""
    name = "tvm_callback_cuda_compile"
    compiler = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, lambda source: b"\0", override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, compiler, override=True)


def kernel_usage(nvcc: str, source: str, arch: str = "sm_80") -> dict[str, KernelUsage]:
    """Compile `source` for `arch` with one run of nvcc; return each kernel's usage by name.

    Raises:
        RuntimeError: If nvcc fails; the text is its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        return parse_report(_compile(nvcc, source, arch, Path(folder) / "kernels.cubin"))


def disassemble(nvcc: str, nvdisasm: str, source: str, arch: str = "sm_80") -> str:
    """Return the machine instructions (SASS) of a CUDA file.

    Raises:
        RuntimeError: If a tool fails; the text is its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        _compile(nvcc, source, arch, cubin)
        return _run([nvdisasm, "-c", str(cubin)])


def compile_ptx(nvcc: str, source: str, arch: str = "sm_80") -> str:
    """Return the virtual instructions (PTX) of a CUDA file.

    Raises:
        RuntimeError: If nvcc fails; the text is its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        unit, ptx = Path(folder) / "kernels.cu", Path(folder) / "kernels.ptx"
        unit.write_text(source)
        _run([nvcc, "-ptx", f"-arch={arch}", "-O3", "-w", "-o", str(ptx), str(unit)])
        return ptx.read_text()


def _compile(nvcc: str, source: str, arch: str, cubin: Path) -> str:
    """Compile a CUDA file; return what ptxas says about it."""
    unit = cubin.with_suffix(".cu")
    unit.write_text(source)
    generate = f"arch=compute_{arch.removeprefix('sm_')},code={arch}"
    command = [nvcc, "-cubin", "-gencode", generate, "-O3", "-Xptxas", "-v"]
    return _run([*command, "-diag-suppress", "177,550", "-o", str(cubin), str(unit)])


def _run(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return ran.stdout + ran.stderr


def parse_report(report: str) -> dict[str, KernelUsage]:
    """Return the usage of each kernel in the output of `ptxas -v`."""
    usage = {}
    entries = re.split(r"Compiling entry function '(\w+)' for '\w+'", report)[1:]
    for name, text in zip(entries[::2], entries[1::2], strict=True):

        def number(pattern: str, text: str = text) -> int:
            found = re.search(pattern, text)
            return int(found[1]) if found else 0

        usage[name] = KernelUsage(
            registers=number(r"Used (\d+) registers"),
            stack=number(r"(\d+) bytes stack frame"),
            spills=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
            shared=number(r"(\d+) bytes smem"),
        )
    return usage
