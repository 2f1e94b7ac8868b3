"""The device a model runs on: whether it is there, and whether the model's code is for it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from relaxc.errors import IncompatibleArtifact


def has_runtime(kind: str) -> bool:
    """Tell whether the installed TVM can load kernels of a target's kind here.

    TVM loads its CUDA runtime only where there is a driver, and the wheel has no OpenCL, Metal
    or ROCm runtime.
    """
    name = f"ffi.Module.load_from_bytes.{'hip' if kind == 'rocm' else kind}"
    return kind == "llvm" or tvm_ffi.get_global_func(name, allow_missing=True) is not None


def device_of(target: Mapping[str, Any], path: Path | None) -> Any:
    """Return the device to run a model on.

    Args:
        target: What the model was compiled for, as a dict.
        path: Its file, if it has one.

    Raises:
        IncompatibleArtifact: If there is no such device, or it is older than the code.
    """
    kind = str(target.get("kind", "llvm"))
    if kind == "llvm":
        return tvm.cpu()
    file = str(path) if path else None
    arch = str(target.get("arch") or target.get("mcpu") or "")
    named = f"{kind} ({arch})" if arch else kind
    if kind == "webgpu":
        raise IncompatibleArtifact(
            f"the model was compiled for {named}, which runs in a browser", file=file
        )
    device = tvm.runtime.device(kind, 0)
    if not has_runtime(kind) or not device.exist:
        raise IncompatibleArtifact(
            f"the model was compiled for {named} and this machine has no such device", file=file
        )
    if kind == "cuda":
        _check_capability(arch, str(device.compute_version), file)
        _choose_compiler()
    return device


def _check_capability(arch: str, version: str, file: str | None) -> None:
    """Refuse code for a newer GPU than there is.

    Raises:
        IncompatibleArtifact: Naming both.
    """
    wanted, here = (int("0" + re.sub(r"\D", "", text)) for text in (arch, version))
    if wanted > here:
        raise IncompatibleArtifact(
            f"the model was compiled for {arch}, the device here is sm_{here}", file=file
        )


def _choose_compiler() -> None:
    """Have TVM compile the model's CUDA C with nvcc where it cannot with NVRTC, its default.

    A file holds CUDA C, which the runtime compiles for the very device when a model first runs.
    """
    if not _has_nvrtc() and shutil.which("nvcc"):
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")


def _has_nvrtc() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False
