"""ONNX importer: model files to Relax graphs.

`import_onnx` is loaded on first use, so that importing this package does not import TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontends.onnx.importer import import_onnx

__all__ = ["import_onnx"]


def __getattr__(name: str) -> Any:
    """Load `import_onnx` when it is first asked for."""
    if name == "import_onnx":
        from frontends.onnx.importer import import_onnx

        return import_onnx
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
