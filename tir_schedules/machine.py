"""The hardware model: what schedules and cost models need to know about a processor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target, codegen

from tir_schedules.gpu import Gpu

# Kinds of target whose kernels are spread over blocks of threads (OpenCL's work-groups).
GPU_KINDS = ("cuda", "rocm", "opencl", "metal", "webgpu")
_DTYPE_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}

_SHARED_BYTES = 16 << 10  # the least that OpenCL's full profile has is 32, WebGPU's default is 16
_BLOCK_THREADS = 256  # WebGPU's default


@dataclass(frozen=True)
class Machine:
    """A processor as a schedule sees it.

    Sizes are in bytes, `vector_bits` is the width of one SIMD register. GPUs use
    `vector_bits=128` (one 16-byte load), count multiprocessors as `cores`, and give as `l1_bytes`
    the shared memory that any block may use.
    """

    name: str
    kind: str  # "llvm", or one of GPU_KINDS
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int
    fma_units: int = 2
    has_fma: bool = True
    gpu: Gpu | None = None  # of an NVIDIA GPU
    block_threads: int = 0  # that a block of a GPU may have; 0: no GPU
    rounds_to_tf32: bool = False  # whether products may round float32 operands to tf32
    # Questions (`tir_schedules.questions`) and what measurements on this processor answered.
    answers: frozenset[tuple[Any, Any]] = frozenset()

    def lanes(self, dtype: str = "float32") -> int:
        """Return how many `dtype` elements one vector register holds."""
        return self.vector_bits // (8 * _DTYPE_BYTES.get(dtype, 4))

    @property
    def most_tensors(self) -> int | None:
        """Return how many tensors a kernel may be given, None for any number.

        WebGPU guarantees so many storage buffers of a shader stage ("Limits", section 3.6.2).
        """
        return 8 if self.kind == "webgpu" else None

    @property
    def is_gpu(self) -> bool:
        """Whether kernels are spread over blocks of threads."""
        return self.kind in GPU_KINDS

    @staticmethod
    def from_target(target: Target) -> Machine:
        """Model the processor that `target` names; unknown fields take conservative values."""
        kind = target.kind.name
        if kind in GPU_KINDS:
            # What any device of the kind grants, unless the target knows more of its own.
            shared = int(target.attrs.get("max_shared_memory_per_block", _SHARED_BYTES))
            threads = int(target.attrs.get("max_num_threads", _BLOCK_THREADS))
            if kind != "cuda":
                return Machine(
                    *(kind, kind, 128, 64, shared, 1 << 20, 0, 16), block_threads=threads
                )
            gpu = Gpu.from_arch(str(target.attrs.get("arch", "sm_80")))
            caches, count = (49152, gpu.l2_bytes, 0), gpu.multiprocessors
            return Machine(kind, kind, 128, 255, *caches, count, gpu=gpu, block_threads=1024)
        cores = int(target.attrs.get("num-cores", 0)) or os.cpu_count() or 1
        triple = str(target.attrs.get("mtriple", ""))
        if triple.startswith(("aarch64", "arm64")):
            return Machine("neon", "llvm", 128, 32, 64 << 10, 512 << 10, 4 << 20, cores)
        features = set(codegen.llvm_get_cpu_features(target))
        caches = (32 << 10, _cache_bytes(2, 512 << 10), _cache_bytes(3, 8 << 20))
        if "avx512f" in features:
            return Machine("avx512", "llvm", 512, 32, *caches, cores)
        if "avx2" in features and "fma" in features:
            return Machine("avx2", "llvm", 256, 16, *caches, cores)
        return Machine("sse4", "llvm", 128, 16, *caches, cores, fma_units=1, has_fma=False)


def _cache_bytes(level: int, default: int) -> int:
    """Read the size of this machine's cache from sysfs, or return `default`."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if int((index / "level").read_text()) == level:
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return default


def host_target(threads: int | None = None) -> Target:
    """Return an LLVM target for the CPU this process runs on.

    Args:
        threads: Worker threads to schedule for; all available cores by default.
    """
    config: dict[str, Any] = {
        "kind": "llvm",
        "mcpu": codegen.llvm_get_system_cpu(),
        "mtriple": codegen.llvm_get_system_triple(),
        "num-cores": threads or len(os.sched_getaffinity(0)),
    }
    return tvm.target.Target(config)
