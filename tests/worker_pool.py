"""Worker processes that are replaced when a job hangs or kills them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import TracebackType
from typing import Any

_START_SECONDS = 120.0


@dataclass(frozen=True)
class Died:
    """What came of a job that took its process along, or too long."""

    reason: str


class WorkerPool:
    """Processes that answer jobs.

    Args:
        answer: Called in a worker with each job; a function of a module, so that it can be sent.
        workers: How many processes.
        most_jobs: After so many jobs a process is replaced, and its memory is given back.
    """

    def __init__(
        self, answer: Callable[[Any], Any], workers: int, *, most_jobs: int | None = None
    ) -> None:
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._pool = [_Worker(answer, most_jobs) for _ in range(max(1, workers))]
        for worker in self._pool:
            self._idle.put(worker)

    def run(self, job: Any, seconds: float) -> Any:
        """Return the answer, or `Died`."""
        worker = self._idle.get()
        try:
            return worker.run(job, seconds)
        finally:
            self._idle.put(worker)

    def run_all(
        self, jobs: Iterable[Any], seconds: Callable[[Any], float]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield each job with its answer as it is there."""
        with ThreadPoolExecutor(len(self._pool)) as threads:
            futures = {threads.submit(self.run, job, seconds(job)): job for job in jobs}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for worker in self._pool:
            worker.stop()


class _Worker:
    """One process that runs jobs."""

    def __init__(self, answer: Callable[[Any], Any], most_jobs: int | None) -> None:
        self._answer, self._most_jobs = answer, most_jobs
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, self._answer), daemon=True)
        self._process.start()
        far.close()
        self._ready, self._jobs = False, 0

    def run(self, job: Any, seconds: float) -> Any:
        if self._jobs == self._most_jobs:
            self.stop()
            self._start()
        self._jobs += 1
        try:
            if not self._ready:
                if not self._pipe.poll(_START_SECONDS):
                    raise RuntimeError("a worker process does not start")
                self._pipe.recv()
                self._ready = True
            self._pipe.send(job)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
            reason = f"no answer in {seconds:g} s"
        except (EOFError, ConnectionError):
            self._process.join(5)
            reason = f"the process died (exit code {self._process.exitcode})"
        self.stop()
        self._start()
        return Died(reason)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, answer: Callable[[Any], Any]) -> None:
    """Answer what the pipe brings until it closes."""
    faulthandler.enable(open(os.devnull, "w"))  # noqa: SIM115 - kept open for the handler
    import relaxc  # noqa: F401 - so that the first job's time is its own

    pipe.send("ready")
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(job))
