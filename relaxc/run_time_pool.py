"""Give back what the run-time pool holds of sizes that calls no longer ask for.

TVM's pool keeps each block that comes back, by its exact size, and never returns one to the system.
Repeated sizes cost nothing then, but a model of unbounded dynamic sizes leaves blocks behind for
every size it has ever seen. So the sizes of calls are counted over all models of the process. Once
they are more than `KEPT_SIZES` and the process has grown by more than `ROOM` bytes, the free blocks
are returned; those in use come back to the pool later. Few sizes in turns never meet that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable
from itertools import count

import tvm_ffi

from frontends.imported_model import TensorSpec
from relaxc.free_memory import return_free_memory
from relaxc.report import Report

KEPT_SIZES = 8  # of calls: their blocks stay, however large
ROOM = 64 << 20  # bytes: less is not worth to allocate anew
_MOST_SIZES = 4096  # to remember, where they are small
_CALLS = 16  # that count as one size where only the data inside a model decides sizes


class RunTimePool:
    """What calls have asked the pool of this process for since it was last emptied."""

    def __init__(self) -> None:
        """Begin with an empty pool."""
        self._lock = threading.Lock()
        self._sizes: set[Hashable] = set()
        self._resident: int | None = 0  # after the first call since the pool was emptied

    def note(self, sizes: Hashable) -> None:
        """Note the sizes of a call that has ended; those of equal value ask for equal blocks."""
        if sizes in self._sizes:
            return
        with self._lock:
            if not self._sizes:
                self._resident = _resident_bytes()
            self._sizes.add(sizes)
            if len(self._sizes) <= KEPT_SIZES:
                return
            if self._has_grown():
                _empty_pool()
                self._sizes.clear()
            elif len(self._sizes) > _MOST_SIZES:
                self._sizes.clear()

    def _has_grown(self) -> bool:
        now = _resident_bytes()
        return now is None or self._resident is None or now - self._resident > ROOM


POOL = RunTimePool()


class CallSizes:
    """What distinguishes the calls of one model that ask the pool for different sizes."""

    def __init__(
        self,
        inputs: Iterable[TensorSpec],
        outputs: Iterable[TensorSpec],
        report: Report,
        pool: RunTimePool = POOL,
    ) -> None:
        """Find out whether there are any, from what goes in and out and what a run allocates."""
        self._pool = pool
        dims = [dim for spec in (*inputs, *outputs) for dim in spec.shape]
        allocations = report.metrics.get("allocations_per_run", {})
        inside = any(number for what, number in allocations.items() if "symbolic" in what)
        self.vary = inside or not all(isinstance(dim, int) for dim in dims)
        self._hidden = inside and all(isinstance(dim, int) for dim in dims)
        self._calls = count()

    def note(self, *shapes: Hashable) -> None:
        """Note a call that has ended, by the shapes of its arguments or results."""
        if self.vary:
            self._pool.note((id(self), next(self._calls) // _CALLS if self._hidden else 0, *shapes))


def _empty_pool() -> None:
    """Return the pool's free blocks to the system; tensors in use are not touched."""
    tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
    return_free_memory()


def _resident_bytes() -> int | None:
    """Return the bytes of this process that lie in memory, None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
