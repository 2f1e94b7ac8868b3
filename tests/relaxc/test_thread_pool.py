"""Threads per model: changed after the pool has started, kept per calling thread."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import tvm_ffi

from relaxc.thread_pool import available_cores, use_threads


def active() -> int:
    return tvm_ffi.get_global_func("runtime.NumThreads")()


@pytest.mark.skipif(available_cores() < 2, reason="needs two cores")
def test_the_number_can_change_and_is_kept_per_thread() -> None:
    seen: list[int] = []

    def other_thread() -> None:
        use_threads(1)
        seen.append(active())

    for count in (1, 2, 1, 2):
        use_threads(count)
        assert active() == count
    worker = threading.Thread(target=other_thread)
    worker.start()
    worker.join()
    use_threads(2)  # nothing to do for this thread: its own pool still has two
    assert seen == [1] and active() == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts tasks in /proc")
def test_threads_that_end_leave_no_workers_behind() -> None:
    """A worker sees the end of its caller only after it has asked for work that many times."""
    tasks = Path("/proc/self/task")

    def count() -> int:
        return len(list(tasks.iterdir()))

    use_threads(2)
    assert int(os.environ["TVM_THREAD_POOL_SPIN_COUNT"]) <= 10_000  # a yield is 0.2 us and more
    before = count()
    for _ in range(20):
        caller = threading.Thread(target=use_threads, args=(2,))
        caller.start()
        caller.join()
    end = time.monotonic() + 20  # other processes may hold the cores; the last callers still end
    while count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert count() <= before
