"""Build ROCm kernels with ROCm's own libraries, or, where there are none, as sources alone.

TVM asks for the libraries of device functions (`exp` and the like) and for a linker while it
generates code, and fails without them. A source needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tvm
import tvm_ffi
from tvm.support import rocm

_LIBRARIES = "tvm_callback_rocm_bitcode_path"
_LINKER = "tvm_callback_rocm_link"


def has_rocm() -> bool:
    """Tell whether ROCm is here, so that kernels can be linked."""
    try:
        return bool(rocm.find_rocm_path() and rocm.find_lld())
    except RuntimeError:
        return False


@contextmanager
def unlinked_kernels() -> Iterator[None]:
    """Let TVM generate ROCm kernels without libraries, and not link them."""
    replaced = {
        _LIBRARIES: lambda *_: tvm.runtime.convert([]),
        _LINKER: lambda compiled: bytes(compiled),
    }
    kept = {name: tvm_ffi.get_global_func(name) for name in replaced}
    for name, function in replaced.items():
        tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        for name, function in kept.items():
            tvm_ffi.register_global_func(name, function, override=True)
