"""relaxc: an ONNX file or a PyTorch module in, one fast shared library out.

    import relaxc
    model = relaxc.compile("model.onnx")
    y = model(x)
    model.save("model.so"); model = relaxc.load("model.so")

Names resolve on first use (PEP 562), so importing this package costs milliseconds: TVM is only
imported by what needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontends.imported_model import TensorSpec
    from relaxc import torch_compile
    from relaxc.artifact import load
    from relaxc.compiled_model import CompiledModel
    from relaxc.compiler import compile
    from relaxc.element_sample import parameters_changed
    from relaxc.errors import (
        CompileError,
        IncompatibleArtifact,
        InvalidInput,
        InvalidModel,
        RelaxcError,
        RunError,
        UnsupportedOperator,
        UnsupportedTarget,
    )
    from relaxc.report import Report
    from relaxc.save_model import link

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "CompiledModel",
    "IncompatibleArtifact",
    "InvalidInput",
    "InvalidModel",
    "RelaxcError",
    "Report",
    "RunError",
    "TensorSpec",
    "UnsupportedOperator",
    "UnsupportedTarget",
    "__version__",
    "compile",
    "link",
    "load",
    "parameters_changed",
    "torch_compile",
]

_HOME = {
    "CompileError": "relaxc.errors",
    "CompiledModel": "relaxc.compiled_model",
    "IncompatibleArtifact": "relaxc.errors",
    "InvalidInput": "relaxc.errors",
    "InvalidModel": "relaxc.errors",
    "RelaxcError": "relaxc.errors",
    "Report": "relaxc.report",
    "RunError": "relaxc.errors",
    "TensorSpec": "frontends.imported_model",
    "UnsupportedOperator": "relaxc.errors",
    "UnsupportedTarget": "relaxc.errors",
    "compile": "relaxc.compiler",
    "link": "relaxc.save_model",
    "load": "relaxc.artifact",
    "parameters_changed": "relaxc.element_sample",
}


def __getattr__(name: str) -> Any:
    """Import the module that defines `name` and return the attribute."""
    if name == "torch_compile":
        return importlib.import_module("relaxc.torch_compile")
    if name not in _HOME:
        raise AttributeError(f"module 'relaxc' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported yet or not."""
    return sorted({*globals(), *__all__})
