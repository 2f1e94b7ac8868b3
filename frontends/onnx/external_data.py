"""Read tensor data that lies in files beside the model, and in no other place.

A model is data from a stranger: its external data must not make the importer read a file outside
the model's folder (`..`, absolute paths, symbolic links), nor more than the tensor's size.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import external_data_helper

from frontends.errors import InvalidModel
from frontends.onnx.check_tensors import byte_count
from frontends.onnx.subgraphs import ModelParts


def load_external_data(parts: ModelParts, folder: Path | None, file: str) -> None:
    """Put external data into a model's tensors.

    Args:
        parts: Of the model, which is changed in place; tensors with data of their own are left.
        folder: The model's folder, None for a model that came without a path.
        file: What to call the model in errors.

    Raises:
        InvalidModel: The data is missing, short, of another size than the tensor, at a
            negative offset, or outside `folder`.
    """
    inner = [part for sparse in parts.sparse_tensors for part in (sparse.values, sparse.indices)]
    for tensor in [*parts.tensors, *inner]:
        if external_data_helper.uses_external_data(tensor):
            _load(tensor, folder, file)


def _load(tensor: onnx.TensorProto, folder: Path | None, file: str) -> None:
    def refuse(reason: str) -> InvalidModel:
        return InvalidModel(reason, tensor=tensor.name, file=file)

    if folder is None:
        raise refuse("its data is external, and a model given as object or bytes has no folder")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str):  # protobuf gives what is not UTF-8 as bytes
        raise refuse(f"the location of its external data is no text: {location!r}")
    size = byte_count(tensor, file)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise refuse("the offset or length of its external data is no number") from None
    for name, number in (("offset", offset), ("length", length)):
        if number < 0:
            raise refuse(f"the {name} of its external data is negative: {number}")
    if length != size:
        raise refuse(f"its external data is {length} bytes, its shape and type take {size} bytes")
    try:
        root = folder.resolve()
        place = (root / location).resolve()
        if Path(location).is_absolute() or not place.is_relative_to(root):
            raise refuse(f"external data {location!r} lies outside the model's folder")
        if not place.is_file():
            raise refuse(f"external data {location!r} is missing")
        present = place.stat().st_size
        if offset + length > present:
            raise refuse(
                f"external data {location!r} is too short: {present} bytes, "
                f"{offset + length} needed"
            )
        with place.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(length)
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL byte, a link loop
        raise refuse(f"external data {location!r} cannot be read: {error}") from error
    tensor.raw_data = data
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
