"""Read tensor data that lies in files beside the model, and in no other place.

A model is data from a stranger: its external data must not make the importer read a file outside
the model's folder (`..`, absolute paths, symbolic links), nor more than the tensor's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data
from tvm import relax

from frontends.errors import InvalidModel
from frontends.onnx.check_tensors import byte_count
from frontends.onnx.subgraphs import ModelParts
from frontends.onnx.value import Value


def load_external_data(parts: ModelParts, folder: Path | None, file: str) -> None:
    """Check where external data lies, and put it into the model's tensors but for its weights.

    The main graph's weights may be larger than the memory has room for copies of: they stay where
    they are until `read_weight` is called.

    Args:
        parts: Of the model, which is changed in place; tensors with data of their own are left.
        folder: The model's folder, None for a model that came without a path.
        file: What to call the model in errors.

    Raises:
        InvalidModel: The data is missing, short, of another size than the tensor, at a
            negative offset, or outside `folder`.
    """
    inner = [part for sparse in parts.sparse_tensors for part in (sparse.values, sparse.indices)]
    for tensor in parts.weights:
        if uses_external_data(tensor):
            _locate(tensor, folder, file)
    for tensor in [*parts.tensors, *inner]:
        if uses_external_data(tensor):
            tensor.raw_data = _read(tensor, folder, file).tobytes()
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def read_weight(tensor: onnx.TensorProto, file: str) -> Value:
    """Return a weight with external data; most of them are read into the constant they become.

    Args:
        tensor: An initializer whose data `load_external_data` has checked.
        file: The model's path.

    Raises:
        InvalidModel: The data has gone or changed meanwhile.
    """
    folder, dims = Path(file).parent, list(tensor.dims)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.kind not in "iufb":  # a type that only ml_dtypes has, or several elements a byte
        whole = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=dims)
        whole.raw_data = _read(tensor, folder, file).tobytes()
        return Value.constant(tensor.name, numpy_helper.to_array(whole))
    memory = tvm.runtime.empty(dims, str(dtype))
    array = np.from_dlpack(memory)
    _read(tensor, folder, file, array)
    return Value(tensor.name, str(dtype), array=array, expr=relax.const(memory))


@dataclass(frozen=True)
class _Place:
    """Where the bytes of a tensor lie."""

    path: Path
    offset: int
    length: int


def _read(
    tensor: onnx.TensorProto, folder: Path | None, file: str, into: np.ndarray | None = None
) -> np.ndarray:
    """Return the bytes of a tensor, read into the memory of a contiguous array if one is given."""
    place = _locate(tensor, folder, file)
    data = np.empty(place.length, "uint8") if into is None else into.reshape(-1).view("uint8")
    done = 0
    try:
        with place.path.open("rb", buffering=0) as stream:
            stream.seek(place.offset)
            while done < place.length:  # the system reads at most 2 GiB at once
                count = stream.readinto(data.data[done:])
                if not count:
                    break
                done += count
    except OSError as error:
        raise InvalidModel(
            f"external data cannot be read: {error}", tensor=tensor.name, file=file
        ) from error
    if done < place.length:
        raise InvalidModel(
            f"external data is too short: {done} of {place.length} bytes could be read",
            tensor=tensor.name,
            file=file,
        )
    return data


def _locate(tensor: onnx.TensorProto, folder: Path | None, file: str) -> _Place:
    """Return where a tensor's data lies, checked to be within the folder and long enough."""

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
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL byte, a link loop
        raise refuse(f"external data {location!r} cannot be read: {error}") from error
    return _Place(place, offset, length)
