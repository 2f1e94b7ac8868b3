"""A sample of mutated models, and the fuzzer's own behaviour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.__main__ import make_case

ROOT = Path(__file__).parents[2]


def test_sixty_mutated_models(tmp_path: Path) -> None:
    """Run in a process of its own: forking this one would copy the threads of its libraries."""
    command = [sys.executable, "-m", "tests.fuzz", "--count", "60", "--seed", "ci"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused" in done.stdout


def test_a_seed_names_a_file_for_good() -> None:
    for number in range(30):
        assert make_case("s", number) == make_case("s", number)
    assert len({make_case("s", number)[1] for number in range(30)}) > 25


_BAD_ENDINGS = """
import sys, os, time
from pathlib import Path
from tests.fuzz import run_case
endings = {
    "crash": lambda *args: os.abort(),
    "hang": lambda *args: time.sleep(60),
    "memory": lambda *args: run_case.Outcome("memory", ""),
    "escaped": lambda *args: 1 / 0,
}
for word, ending in endings.items():
    run_case._in_child = ending
    outcome = run_case.run_case(Path("m"), compiling=False, seconds=1.0, megabytes=64)
    assert outcome.word == word, (word, outcome)
print("all noticed")
"""


def test_bad_endings_are_noticed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BAD_ENDINGS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "all noticed" in done.stdout, done.stderr


def test_the_memory_limit_holds() -> None:
    """Two gigabytes do not fit into a quarter of one."""
    code = (
        "from pathlib import Path; from tests.fuzz import run_case\n"
        "import numpy, relaxc.compiler as c\n"
        "c.import_source = lambda path: numpy.ones(1 << 28)\n"
        "print(run_case.run_case(Path('m'), compiling=False, seconds=30, megabytes=256).word)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split()[0] == "memory", done.stdout + done.stderr
