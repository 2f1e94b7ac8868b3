"""Run cases in worker processes that are replaced when a case hangs or kills them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue

from tests.conformance.cases import Case
from tests.conformance.run_case import Outcome, run_case

_START_SECONDS = 120.0
_LIGHT_FACTOR = 5  # whole networks of up to 1,000 nodes


def run_cases(
    cases: Sequence[Case],
    workers: int,
    seconds: float,
    on_done: Callable[[Case, Outcome], None] = lambda case, outcome: None,
) -> dict[str, Outcome]:
    """Run cases and return the outcome of each by key.

    Args:
        cases: What to run; each is sent to a worker with its data.
        workers: Number of processes.
        seconds: Time-out of one case, longer for a whole network; its process is killed then.
        on_done: Called in this process after each case.
    """
    count = max(1, min(workers, len(cases)))
    idle: SimpleQueue[_Worker] = SimpleQueue()
    pool = [_Worker() for _ in range(count)]
    for worker in pool:
        idle.put(worker)

    def run(case: Case) -> Outcome:
        with _borrowed(idle) as worker:
            return worker.run(case, seconds * (_LIGHT_FACTOR if case.suite == "light" else 1))

    outcomes = {}
    try:
        with ThreadPoolExecutor(count) as threads:
            futures = {threads.submit(run, case): case for case in cases}
            for future in as_completed(futures):
                case, outcome = futures[future], future.result()
                outcomes[case.key] = outcome
                on_done(case, outcome)
    finally:
        for worker in pool:
            worker.stop()
    return {case.key: outcomes[case.key] for case in cases}


@contextmanager
def _borrowed(idle: SimpleQueue[_Worker]) -> Iterator[_Worker]:
    worker = idle.get()
    try:
        yield worker
    finally:
        idle.put(worker)


class _Worker:
    """One process that runs cases."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far,), daemon=True)
        self._process.start()
        far.close()
        self._ready = False

    def run(self, case: Case, seconds: float) -> Outcome:
        try:
            if not self._ready:
                if not self._pipe.poll(_START_SECONDS):
                    raise RuntimeError("a worker process does not start")
                self._pipe.recv()
                self._ready = True
            self._pipe.send(case)
            if self._pipe.poll(seconds):
                result: Outcome = self._pipe.recv()
                return result
            reason = f"no answer in {seconds:g} s"
        except (EOFError, ConnectionError):
            self._process.join(5)
            reason = f"the process died (exit code {self._process.exitcode})"
        self._process.kill()
        self._process.join()
        self._start()
        return Outcome("error", reason)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Run what the pipe brings until it closes."""
    faulthandler.enable(open(os.devnull, "w"))  # noqa: SIM115 - kept open for the handler
    import relaxc  # noqa: F401 - so that the first case's time is its own

    pipe.send("ready")
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(run_case(case))
