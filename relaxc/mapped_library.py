"""The library in a file of a compiled model, and its weights, mapped to memory."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from relaxc.stored_weights import WeightTable


class Library:
    """A mapped file; models loaded from it share its code and weights."""

    def __init__(self, module: Any, weights: Sequence[Any]) -> None:
        self.module, self.weights = module, weights


_mapped: weakref.WeakValueDictionary[tuple[int, ...], Library] = weakref.WeakValueDictionary()
_mapping = threading.Lock()


def shared_library(file: BinaryIO, path: Path, table: WeightTable, end: int) -> Library:
    """Return the library of an open file, mapped once while any model uses it.

    A file written anew is another one, whatever its name.

    Args:
        file: The file; it may be closed afterwards.
        path: Its name.
        table: The weights in it.
        end: The place behind them.
    """
    state = os.fstat(file.fileno())
    key = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
    with _mapping:
        library = _mapped.get(key)
        if library is None:
            weights = table.map(file, end)
            library = _mapped[key] = Library(_map_library(file, path), weights)
        return library


def _map_library(file: BinaryIO, path: Path) -> Any:
    """Load the library in an open file by a name that no library had before.

    The C library takes a name that it has loaded for the same library, even if another file lies
    there by now; TVM never unloads one, and picks its loader by the suffix.
    """
    import tvm_ffi

    opened = Path(f"/proc/self/fd/{file.fileno()}")
    with tempfile.TemporaryDirectory(prefix="relaxc-") as folder:
        link = Path(folder) / "model.so"
        link.symlink_to(opened if opened.exists() else path)
        return tvm_ffi.load_module(str(link))
