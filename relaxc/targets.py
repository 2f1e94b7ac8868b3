"""Targets: what the user names, completed with all that scheduling needs, and as plain data."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm.target import Target

from relaxc.errors import InvalidInput, UnsupportedTarget

# Compute capabilities of NVIDIA's compilers; "a" and "f" behind one add what is not portable.
_CAPABILITIES = (
    50,
    52,
    53,
    60,
    61,
    62,
    70,
    72,
    75,
    80,
    86,
    87,
    88,
    89,
    90,
    100,
    103,
    110,
    120,
    121,
)
_SUFFIXES = ("", "a", "f")
# What a block may use without opting in, on every CUDA architecture.
_CUDA_SHARED_BYTES = 49152
_KINDS = ("llvm", "cuda", "opencl", "metal", "rocm", "webgpu")
# What any device of the kind grants (for WebGPU and OpenCL, what the standards promise).
_LIMITS = {
    "opencl": {"max_num_threads": 256, "max_shared_memory_per_block": 16384},
    "metal": {"max_num_threads": 256, "max_shared_memory_per_block": 32768},
    "rocm": {"max_num_threads": 256, "max_shared_memory_per_block": 65536},
    "webgpu": {"max_num_threads": 256, "max_shared_memory_per_block": 16384},
}
_ROCM_ARCH = "gfx90a"


def resolve_target(target: str | Mapping[str, Any] | Target, threads: int) -> Target:
    """Turn what the user names into a TVM target with every field that scheduling needs.

    Args:
        target: "llvm", "cuda", "opencl", "metal", "rocm" or "webgpu", the name of a TVM tag, a dict
            or a TVM target. In the dict of a GPU, `host` is the processor that launches kernels: an
            LLVM triple such as "aarch64-linux-gnu", or a dict; this machine's by default.
        threads: That kernels on the processor run with.

    Raises:
        InvalidInput: If there is no such target, architecture or processor.
        UnsupportedTarget: If the installed TVM has no code generator for it.
    """
    from tir_schedules.machine import host_target

    if target == "llvm":
        return host_target(threads)
    if isinstance(target, Target):
        return _generated(target)
    if isinstance(target, str) and target in _KINDS:
        target = {"kind": target}
    try:
        if isinstance(target, str):
            target = _target_of_tag(target)
        fields = dict(target)
        if fields.get("kind") == "llvm":
            _check_processor(fields)
            return Target({"num-cores": threads, **fields})
        host = _host(fields.pop("host", None), threads)
        return _generated(Target({**_device_fields(fields), **fields}, host=host))
    except (ValueError, TypeError, RuntimeError, KeyError) as fault:
        lines = str(fault).strip().splitlines() or [repr(fault)]
        raise InvalidInput(f"unknown target {target!r}: {lines[-1]}") from fault


def target_dict(target: Target) -> dict[str, Any]:
    """Return a target as a JSON-ready dict."""
    data: dict[str, Any] = {"kind": target.kind.name}
    data.update({str(key): _plain(value) for key, value in target.attrs.items()})
    if target.host is not None and not target.host.same_as(target):
        data["host"] = target_dict(target.host)
    return data


def _target_of_tag(tag: str) -> dict[str, Any]:
    """Return the fields of a tag, such as "nvidia/geforce-rtx-3090"."""
    fields = target_dict(Target(tag))
    fields.pop("host", None)
    return {name: value for name, value in fields.items() if value is not None}


def _device_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a device's target leaves out.

    Raises:
        InvalidInput: If it names an architecture that is not there.
    """
    kind = fields.get("kind")
    if kind != "cuda":
        return {**_LIMITS.get(str(kind), {}), **({"mcpu": _ROCM_ARCH} if kind == "rocm" else {})}
    # TVM alone would take sm_50, for which there are no Tensor Cores.
    arch = str(fields.get("arch") or _cuda_arch())
    known = [f"sm_{capability}{suffix}" for capability in _CAPABILITIES for suffix in _SUFFIXES]
    if arch not in known:
        near = f"sm_{arch}" if f"sm_{arch}" in known else ""
        shown = near or _nearest(arch, ["sm_80", "sm_86", "sm_89", "sm_90", *known])
        raise InvalidInput(f"there is no CUDA architecture {arch!r}; such as {shown} would do")
    return {"arch": arch, "max_shared_memory_per_block": _CUDA_SHARED_BYTES}


def _host(host: Any, threads: int) -> Target:
    """Return the target of the processor that launches kernels.

    Raises:
        InvalidInput: If LLVM does not know it.
    """
    from tir_schedules.machine import host_target

    if host is None:
        return host_target(threads)
    if isinstance(host, Target):
        return host
    fields = {"kind": "llvm", **({"mtriple": host} if isinstance(host, str) else host)}
    _check_processor(fields)
    return Target({"num-cores": threads, **fields})


def _generated(target: Target) -> Target:
    """Return a target that code can be generated for.

    Raises:
        UnsupportedTarget: If the installed TVM has no code generator for its kind.
    """
    kind = target.kind.name
    if kind not in _KINDS:
        raise UnsupportedTarget(f"no schedule rules for target {kind!r}; there are {_listed()}")
    if tvm_ffi.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        raise UnsupportedTarget(f"this build of TVM has no code generator for {kind!r}")
    return target


def _listed() -> str:
    return ", ".join(_KINDS)


def _check_processor(fields: Mapping[str, Any]) -> None:
    """Refuse a processor that LLVM does not know; it would silently compile for any.

    Raises:
        InvalidInput: Naming what is like it.
    """
    from tvm.target import codegen

    triple = str(fields.get("mtriple", "")) or codegen.llvm_get_system_triple()
    architectures = [str(name) for name in codegen.llvm_get_targets()]
    architecture = triple.split("-")[0]
    if architecture not in architectures:
        near = _nearest(architecture, architectures)
        raise InvalidInput(f"LLVM compiles for no processor {architecture!r}; such as {near}")
    name = str(fields.get("mcpu", ""))
    if not name or codegen.llvm_is_valid_cpu(name, triple):
        return
    target = Target({"kind": "llvm", "mtriple": triple})
    known = [str(cpu) for cpu in codegen.llvm_get_cpu_archlist(target)]
    raise InvalidInput(
        f"LLVM knows no processor {name!r} for {triple}; such as {_nearest(name, known)} would do"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the names most like one, else the first ones, as a list to read."""
    names = list(dict.fromkeys(known))
    return ", ".join(difflib.get_close_matches(name, names, n=4, cutoff=0.5) or names[:4])


def _cuda_arch() -> str:
    device = tvm.runtime.device("cuda", 0)
    if device.exist:
        return "sm_" + str(device.compute_version).replace(".", "")
    return "sm_80"


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return str(value)
