"""The weights of a compiled model: in its file beside the library, and mapped from there.

    library | marker "RELAXCWT" | zeros | weight | zeros | weight | ...

Each weight begins at a multiple of 64 bytes: generated code loads whole vectors and cache lines.

Nothing is copied when a model is loaded: the tensors that the compiled functions take are views of
the mapped file, which all processes that have loaded it share, and of which only what is read comes
to memory. On Linux 6 an ext4 file lies in huge pages in the page cache, and is mapped by them.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

import numpy as np

MARKER = b"RELAXCWT"
_ALIGNMENT = 64


@dataclass(frozen=True)
class StoredWeight:
    """One weight: its elements, and how many bytes behind the first it begins."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class WeightTable:
    """Which weights a model has, and which of its functions take them after their arguments.

    Attributes:
        weights: In the order in which they lie in the file.
        takes: Numbers of weights, by the name of a function of the library.
    """

    weights: tuple[StoredWeight, ...] = ()
    takes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(tensors: Sequence[Any], takes: dict[str, tuple[int, ...]]) -> WeightTable:
        """Give each tensor a place."""
        weights: list[StoredWeight] = []
        end = 0
        for tensor in tensors:
            shape = tuple(int(size) for size in tensor.shape)
            weights.append(StoredWeight(_aligned(end), str(tensor.dtype), shape))
            end = weights[-1].offset + weights[-1].nbytes
        return WeightTable(tuple(weights), takes)

    @property
    def nbytes(self) -> int:
        """Bytes from the beginning of the first to the end of the last."""
        return self.weights[-1].offset + self.weights[-1].nbytes if self.weights else 0

    @property
    def nbytes_alone(self) -> int:
        """Bytes that `write` makes of an empty file."""
        return _aligned(len(MARKER)) + self.nbytes if self.weights else 0

    def write(self, file: BinaryIO, tensors: Sequence[Any]) -> None:
        """Write tensors on the CPU, in the table's order, to the end of a library."""
        if not self.weights:
            return
        end = file.seek(0, os.SEEK_END) + len(MARKER)
        start = _aligned(end)
        file.write(MARKER)
        for weight, tensor in zip(self.weights, tensors, strict=True):
            file.write(bytes(start + weight.offset - end))
            file.write(np.from_dlpack(tensor).reshape(-1).view(np.uint8).data)
            end = start + weight.offset + weight.nbytes

    def map(self, file: BinaryIO, end: int) -> list[Any]:
        """Return the weights as tensors that view a file.

        Args:
            file: The open file, which may be closed after; it must not be changed in place while a
                tensor lives.
            end: The place behind the last one.

        Raises:
            ValueError: If the file does not hold them there.
        """
        if not self.weights:
            return []
        from tvm.runtime import from_dlpack

        start = end - self.nbytes
        if start < 0 or start % _ALIGNMENT or os.fstat(file.fileno()).st_size < end:
            raise ValueError(f"no {self.nbytes} bytes of weights lie before place {end}")
        # Private, not read-only: NumPy hands out no tensor of what must not be written.
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return [
            from_dlpack(
                np.frombuffer(pages, w.dtype, math.prod(w.shape), start + w.offset).reshape(w.shape)
            )
            for w in self.weights
        ]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; `from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> WeightTable:
        """Rebuild the table from `to_json`'s dict."""
        weights = [
            StoredWeight(w["offset"], w["dtype"], tuple(w["shape"])) for w in data["weights"]
        ]
        takes = {name: tuple(numbers) for name, numbers in data["takes"].items()}
        return WeightTable(tuple(weights), takes)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
