"""Measure ONNX Runtime's arena from its own log.

The arena is told to grow by what is asked of it and no more; its log then states each extension.
Counted is what it grew by in the first run, where tensors take what others have freed. (From these
calls the session plans one block for all tensors, its "memory pattern", which the second run asks
for on top, so a session that runs twice holds more.) The registration of an allocator is global, so
it happens in a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from relaxc.errors import InvalidInput

_RUN = "--- run"
_EXTENDED = re.compile(r"Extended allocation by (\d+) bytes")
_SCRIPT = f"""
import sys
import numpy as np
import onnxruntime as ort
kind, place = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
arena = ort.OrtMemoryInfo("Cpu", kind, 0, place)
ort.set_default_logger_severity(0)  # the arena writes to this log, not to the session's
ort.create_and_register_allocator(arena, ort.OrtArenaCfg(0, 1, -1, -1))  # grow as requested
options = ort.SessionOptions()
options.log_severity_level = 0
options.intra_op_num_threads = int(sys.argv[2])
options.add_session_config_entry("session.use_env_allocators", "1")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = dict(np.load(sys.argv[3]))
print("{_RUN}", file=sys.stderr, flush=True)
session.run(None, feeds)
"""


def onnxruntime_arena_bytes(model: str | Path, feeds: dict, threads: int = 1) -> int | None:
    """Return the bytes ONNX Runtime allocates for intermediates and outputs, None if it logs none.

    Args:
        model: Path of an ONNX file.
        feeds: Arrays by input name.
        threads: Threads of a kernel.

    Raises:
        InvalidInput: If onnxruntime is missing or cannot run the model.
    """
    import tempfile

    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "feeds.npz"
        np.savez(arrays, **feeds)
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(model), str(threads), str(arrays)],
            capture_output=True,
            text=True,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InvalidInput(f"onnxruntime cannot run it: {last}", file=str(model))
    _, _, run = done.stderr.partition(_RUN)
    return sum(map(int, _EXTENDED.findall(run))) or None
