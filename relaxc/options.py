"""Check the options of `relaxc.compile` before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from relaxc.errors import InvalidInput

PRECISIONS = ("float32", "strict", "tf32")
TUNE = (None, "quick")


def check_options(
    source: Any,
    precision: Any,
    dynamic_shapes: Any,
    threads: Any,
    passes: Any,
    keep_params: Any = False,
    tune: Any = None,
) -> None:
    """Refuse options of a wrong value or type before anything runs.

    Raises:
        InvalidInput: Naming the option.
    """
    from relax_passes.pipeline import Pipeline

    if precision not in PRECISIONS:
        raise InvalidInput(f"unknown precision {precision!r}, expected one of {PRECISIONS}")
    if tune not in TUNE:
        raise InvalidInput(f"unknown tune {tune!r}, expected one of {TUNE}")
    is_number = isinstance(threads, int) and not isinstance(threads, bool)
    if threads is not None and (not is_number or threads < 1):
        raise InvalidInput(f"threads must be a positive number, got {threads!r}")
    if not isinstance(keep_params, bool):
        raise InvalidInput(f"keep_params must be True or False, got {keep_params!r}")
    if keep_params and not is_torch(source):
        raise InvalidInput(
            "keep_params is for a torch.nn.Module or an ExportedProgram: weights of other models "
            "are constants"
        )
    if passes is not None and not isinstance(passes, Pipeline):
        raise InvalidInput(f"passes must be a Pipeline, got {type(passes).__name__}")
    if dynamic_shapes is None:
        return
    if isinstance(source, tvm.IRModule):
        raise InvalidInput("dynamic_shapes: the dimensions of a tvm.IRModule are its own")
    if not isinstance(dynamic_shapes, Mapping | list | tuple) or (
        is_onnx(source) and not isinstance(dynamic_shapes, Mapping)
    ):
        raise InvalidInput(
            "dynamic_shapes must be a dict from input names to dimensions, got "
            f"{type(dynamic_shapes).__name__}"
        )
    named = dynamic_shapes.items() if isinstance(dynamic_shapes, Mapping) else ()
    for name, dims in named if is_onnx(source) else ():
        if not isinstance(dims, Mapping | list | tuple):
            raise InvalidInput(
                f"dynamic_shapes: the dimensions are a dict by axis or a list, not {dims!r}",
                tensor=str(name),
            )


def with_plain_sizes(dynamic_shapes: Any) -> Any:
    """Return `dynamic_shapes` of an ONNX model with the integers of NumPy as those of Python."""
    if isinstance(dynamic_shapes, np.integer):
        return int(dynamic_shapes)
    if isinstance(dynamic_shapes, Mapping):
        pairs = dynamic_shapes.items()
        return {with_plain_sizes(key): with_plain_sizes(item) for key, item in pairs}
    if isinstance(dynamic_shapes, list | tuple):
        return [with_plain_sizes(item) for item in dynamic_shapes]
    return dynamic_shapes


def is_torch(source: Any) -> bool:
    """Tell whether a source goes to the PyTorch frontend."""
    # A torch.nn.Module's class is usually the user's own, so its bases tell what it is.
    bases = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(source).__mro__}
    torch_kinds = {
        "torch.nn.modules.module.Module",
        "torch.export.exported_program.ExportedProgram",
    }
    return bool(bases & torch_kinds)


def is_onnx(source: Any) -> bool:
    """Tell whether a source goes to the ONNX frontend."""
    home = type(source).__module__.split(".")[0]
    is_proto = home == "onnx" and type(source).__name__ == "ModelProto"
    return is_proto or isinstance(source, str | os.PathLike)


def prepare_dump_dir(dump_dir: Any) -> Path | None:
    """Make the folder that receives dumps.

    Raises:
        InvalidInput: If it is no path, or cannot be made.
    """
    if dump_dir is None:
        return None
    if not isinstance(dump_dir, str | os.PathLike):
        raise InvalidInput(f"dump_dir must be a path, got {type(dump_dir).__name__}")
    try:
        Path(dump_dir).mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InvalidInput(
            f"cannot write dumps: {fault.strerror or fault}", file=str(dump_dir)
        ) from fault
    return Path(dump_dir)
