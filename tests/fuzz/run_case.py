"""Run one mutated model in a process of its own, and tell how it ended."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
from pathlib import Path
from typing import NamedTuple

GOOD = ("compiled", "imported", "refused")


class Outcome(NamedTuple):
    """How a case ended: a word of `GOOD`, or "crash", "hang", "memory", "escaped"; and details."""

    word: str
    detail: str


def run_case(path: Path, *, compiling: bool, seconds: float, megabytes: int) -> Outcome:
    """Import the model, and compile it if asked to, in a forked process.

    Args:
        path: The model; relaxc must be imported already, so that a process starts in no time.
        compiling: Whether to compile what imports.
        seconds: Processor time after which the process is killed, a hang, so that a busy machine
            makes none; a process that waits for something is killed after four times as long.
        megabytes: Address space that the process may add to what it was born with.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            limit = max(1, int(seconds))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            outcome = _in_child(path, compiling, megabytes)
        except BaseException:  # noqa: BLE001 - nothing may return into the parent's stack
            outcome = Outcome("escaped", traceback.format_exc())
        os.write(writer, json.dumps(outcome).encode()[:60000])
        os._exit(0)
    os.close(writer)
    try:
        return _wait(child, reader, 4 * seconds)
    finally:
        os.close(reader)


def _in_child(path: Path, compiling: bool, megabytes: int) -> Outcome:
    import relaxc
    from relaxc.compiler import import_source
    from relaxc.errors import CompileError, RelaxcError

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if not compiling:
            import_source(path)
            return Outcome("imported", "")
        relaxc.compile(path, threads=1, progress=False)
        return Outcome("compiled", "")
    except MemoryError:
        return Outcome("memory", traceback.format_exc())
    except CompileError as error:
        # The importer takes only what can be compiled, or says that it is not supported.
        cause = error.__cause__
        word = "memory" if isinstance(cause, MemoryError) else "escaped"
        return Outcome(word, "".join(traceback.format_exception(error)))
    except RelaxcError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")


def _wait(child: int, reader: int, seconds: float) -> Outcome:
    deadline = time.monotonic() + seconds
    data = b""
    while True:
        left = deadline - time.monotonic()
        ready = select.select([reader], [], [], max(left, 0.0))[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Outcome("hang", f"still running after {seconds:.0f} s")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Outcome("hang", "took all of its processor time")
    if os.WIFSIGNALED(status):
        return Outcome("crash", f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    if not data:
        return Outcome("crash", f"ended with status {os.WEXITSTATUS(status)}")
    return Outcome(*json.loads(data))
