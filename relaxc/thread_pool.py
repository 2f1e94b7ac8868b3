"""Set how many threads TVM's parallel regions use.

TVM keeps one worker pool per calling thread. A pool is as large as `TVM_NUM_THREADS` says when the
thread enters its first parallel region (without it, TVM takes half of the CPUs it counts), and
`runtime.config_threadpool` then chooses how many of those workers take part. So the variable is
set once to all available cores, and each model picks its own number before it runs.

TVM would also pin each worker to a core, the same one in every pool: two models in two threads,
or any other busy process, then wait for each other while another core idles. `TVM_BIND_THREADS=0`
leaves the placing to the operating system.

A thread that ends waits for its workers to end. One that has nothing to do asks for work again and
again before it sleeps, 300,000 times by default, and ends no sooner: 0.07 s of a core, for each
thread that has called a model, and seconds where these compete for the cores. `_ASKING` is some
0.5 ms: longer than what lies between two parallel kernels of most models, and ten times what it
costs to wake a worker. Three image networks take as long with it as with the default, but a fifth
more with a quarter of it.
"""

from __future__ import annotations

import os
import threading

_STATE = threading.local()
_ASKING = 2_000  # times a worker yields its core waiting for work, before it sleeps
_ALL_WORKERS_MODE = 1  # TVM's "big cores first" affinity mode; 0 lets it count the cores itself


def available_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Make the calling thread's parallel regions use `count` threads; cheap when nothing changes.

    A `TVM_NUM_THREADS` set by the user stays the upper limit; what the user set of
    `TVM_BIND_THREADS` and `TVM_THREAD_POOL_SPIN_COUNT` is kept too.
    """
    if getattr(_STATE, "count", None) == count:
        return
    os.environ.setdefault("TVM_NUM_THREADS", str(max(count, available_cores())))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", str(_ASKING))
    import tvm_ffi

    tvm_ffi.get_global_func("runtime.config_threadpool")(_ALL_WORKERS_MODE, count)
    _STATE.count = count
