"""Targets: what the user names, completed with all that scheduling needs, and as plain data."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm.target import Target

from relaxc.errors import InvalidInput


def resolve_target(target: str | Mapping[str, Any] | Target, threads: int) -> Target:
    """Turn what the user names into a TVM target with every field that scheduling needs.

    Raises:
        InvalidInput: If TVM knows no such target.
    """
    from tir_schedules.machine import host_target

    if target == "llvm":
        return host_target(threads)
    if isinstance(target, Target):
        return target
    if isinstance(target, Mapping) and target.get("kind") == "llvm" and "mcpu" in target:
        _check_processor(str(target["mcpu"]), str(target.get("mtriple", "")))
    if target == "cuda":
        target = {"kind": "cuda"}
    try:
        if isinstance(target, Mapping) and target.get("kind") == "cuda":
            # TVM alone would take sm_50, for which there are no Tensor Cores; 48 KiB is what
            # a block may use without opting in, on every architecture.
            base = {"arch": _cuda_arch(), "max_shared_memory_per_block": 49152}
            return Target({**base, **target}, host=host_target(threads))
        if isinstance(target, Mapping):
            base = {"num-cores": threads} if target.get("kind") == "llvm" else {}
            return Target({**base, **target})
        return Target(target)
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


def _check_processor(name: str, triple: str) -> None:
    """Refuse a processor that LLVM does not know; it would silently compile for any.

    Raises:
        InvalidInput: Naming what is like it.
    """
    from tvm.target import codegen

    triple = triple or codegen.llvm_get_system_triple()
    if codegen.llvm_is_valid_cpu(name, triple):
        return
    known = [str(cpu) for cpu in codegen.llvm_get_cpu_archlist(Target({"kind": "llvm"}))]
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.5) or known[:5]
    raise InvalidInput(
        f"LLVM knows no processor {name!r} for {triple}; such as {', '.join(near)} would do"
    )


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
