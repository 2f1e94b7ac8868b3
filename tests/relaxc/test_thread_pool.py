"""Threads per model: changed after the pool has started, kept per calling thread."""

from __future__ import annotations

import threading

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
