"""A compiled model as bytes, for `pickle`: the file that `save` writes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.artifact import load

if TYPE_CHECKING:
    from relaxc.compiled_model import CompiledModel

_NAME = "model.so"


def model_to_bytes(model: CompiledModel) -> bytes:
    """Return what `CompiledModel.save` writes.

    Raises:
        InvalidInput: If there is no room for a temporary file.
    """
    with tempfile.TemporaryDirectory(prefix="relaxc-") as folder:
        return model.save(Path(folder) / _NAME).read_bytes()


def model_from_bytes(data: bytes) -> CompiledModel:
    """Load a model from what `model_to_bytes` returned.

    Raises:
        IncompatibleArtifact: As `relaxc.load` does.
    """
    folder = tempfile.TemporaryDirectory(prefix="relaxc-")
    path = Path(folder.name) / _NAME
    path.write_bytes(data)
    model = load(path)
    model.keep(folder)  # saving the model copies the file
    return model
