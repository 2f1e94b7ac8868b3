"""The source text of a model's device kernels, as TVM's code generators wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# By the kind of TVM's module: the format to ask for, and the name of the file.
_FILES = {
    "cuda": (("cuda", "kernels.cu"),),
    "opencl": (("cl", "kernels.cl"),),
    "metal": (("metal", "kernels.metal"),),
    "webgpu": (("wgsl", "kernels.wgsl"),),
    "hip": (("llvm", "kernels.ll"), ("asm", "kernels.s")),  # ROCm's kernels come from LLVM
}


def device_sources(module: Any) -> dict[str, str]:
    """Return the text of every device kernel that a built module imports, by file name.

    Args:
        module: A `tvm_ffi.Module`.
    """
    sources: dict[str, str] = {}
    for imported in _imports_of(module):
        for text_format, name in _FILES.get(str(imported.kind), ()):
            sources[name] = sources.get(name, "") + str(imported.inspect_source(text_format))
    return sources


def _imports_of(module: Any) -> Iterator[Any]:
    for imported in module.imports:
        yield imported
        yield from _imports_of(imported)
