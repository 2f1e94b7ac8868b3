"""Elementwise, softmax and matmul kernels under the emulator, against NumPy; faults it catches."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.run_kernel import CASES

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux",
    reason="the emulator switches fibers in x86-64 assembly and fakes libcuda.so",
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run kernels in a new process: the emulator must be there before tvm is imported."""
    return subprocess.run(
        [sys.executable, "-m", "tests.cuda.run_kernel", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("order", ["fwd", "rev"])
def test_kernels_agree_with_numpy_in_both_thread_orders(order: str) -> None:
    ran = run(*CASES, EMULATOR_ORDER=order)
    assert ran.returncode == 0, ran.stderr[-2000:]
    errors = dict(re.findall(r"error (\w+) (\S+)", ran.stdout))
    assert set(errors) == set(CASES)
    assert {name: e for name, e in errors.items() if not float(e) < 1e-5} == {}


def test_a_dropped_barrier_is_caught() -> None:
    whole = run("matmul", EMULATOR_CHECKED="1")
    assert whole.returncode == 0, whole.stderr[-2000:]
    broken = run("matmul", "1", EMULATOR_CHECKED="1")
    assert broken.returncode != 0
    assert re.search(
        "shared-memory race|read of shared memory that was never written", broken.stderr
    )
