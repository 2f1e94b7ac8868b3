"""Launch generated kernels from this process, without TVM's runtime: one g++ run a kernel.

`install.py` makes a whole device out of the same parts; a test of one kernel needs only this.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.cuda.emulator.compile_kernel import (
    build_c_library,
    compile_kernel,
    kernel_parameters,
)


class Fault(Exception):
    """What the emulator found wrong with a kernel."""


class Traffic(ctypes.Structure):
    """What a launch asked of the memory system; see traffic.hpp. Bytes in whole sectors."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "global_read_bytes",
            "global_written_bytes",
            "shared_instructions",
            "bank_conflicts",
            "matrix_instructions",
            "barriers",
        )
    ]


@dataclass(frozen=True)
class Grid:
    """How a kernel is launched: blocks, threads of a block, bytes of dynamic shared memory."""

    blocks: Sequence[int]
    threads: Sequence[int]
    dynamic_shared: int = 0


@functools.cache
def _memory() -> ctypes.CDLL:
    """Build and load the device memory, where kernels find its symbols."""
    library = cache_folder() / "libguarded_memory.so"
    build_c_library(["guarded_memory.c"], library)
    memory = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    memory.emulator_allocate.restype = ctypes.c_void_p
    memory.emulator_allocate.argtypes = [ctypes.c_size_t]
    memory.emulator_free.argtypes = [ctypes.c_void_p]
    return memory


@functools.cache
def cache_folder() -> Path:
    """Return the folder of compiled kernels: this process's own, removed with it."""
    return Path(_cache().name)


@functools.cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="cuda_emulator_")


def launch(
    source: str,
    kernel: str,
    grid: Grid,
    arguments: Mapping[str, np.ndarray | int],
    *,
    checked: bool = False,
    backward: bool = False,
) -> Traffic:
    """Run one kernel; arrays are copied to guarded device memory and, afterwards, back.

    Args:
        source: CUDA C that defines the kernel.
        kernel: Its name.
        grid: How to launch it.
        arguments: The value of each of its parameters, by name.
        checked: Find races and unwritten shared memory, count bytes and bank conflicts.
        backward: Let the last thread run first.

    Raises:
        Fault: If the emulator finds something wrong.
    """
    memory = _memory()
    library = ctypes.CDLL(str(compile_kernel(source, cache_folder(), checked)))
    library.emulator_error.restype = ctypes.c_char_p
    library.emulator_traffic.restype = ctypes.POINTER(Traffic)
    buffers: dict[str, int] = {}
    values: list[ctypes._SimpleCData] = []
    for name in kernel_parameters(source)[kernel]:
        value = arguments[name]
        if isinstance(value, np.ndarray):
            buffers[name] = memory.emulator_allocate(value.nbytes)
            ctypes.memmove(buffers[name], value.ctypes.data, value.nbytes)
            values.append(ctypes.c_void_p(buffers[name]))
        else:
            values.append(ctypes.c_int64(value))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    os.environ["EMULATOR_ORDER"] = "rev" if backward else "fwd"
    traffic = library.emulator_traffic().contents
    ctypes.memset(ctypes.addressof(traffic), 0, ctypes.sizeof(traffic))
    failed = getattr(library, f"emulator_launch_{kernel}")(
        pointers, _dim3(grid.blocks), _dim3(grid.threads), grid.dynamic_shared
    )
    overwritten = []
    for name, buffer in buffers.items():
        array = arguments[name]
        ctypes.memmove(array.ctypes.data, buffer, array.nbytes)
        if memory.emulator_free(buffer):
            overwritten.append(name)
    if failed:
        raise Fault(library.emulator_error().decode())
    if overwritten:
        raise Fault(f"a write past the end of {', '.join(overwritten)}")
    return Traffic.from_buffer_copy(traffic)  # the next launch counts in the same place


def _dim3(sizes: Sequence[int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))
