"""Every tutorial script runs and checks its own result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_tutorial_runs(script):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_first_tutorial_shows_every_stage():
    text = SCRIPTS[0].read_text()
    for stage in ("Import", "`rewrite`", "`layout`", "`fuse`", "`schedule`", "`memory`", "Build"):
        assert stage in text


def test_the_second_tutorial_shows_every_stage():
    text = SCRIPTS[1].read_text()
    for stage in ("Import", "`fuse`", "`schedule`", "`memory`", "several sizes", "Buckets"):
        assert stage in text


def test_the_third_tutorial_shows_every_stage():
    text = SCRIPTS[2].read_text()
    for stage in ("lower", "categories", "post-dominators", "the table", "fuse", "how far", "same"):
        assert f": {stage}" in text


def test_the_fourth_tutorial_shows_what_folds_and_what_is_refused():
    text = SCRIPTS[3].read_text()
    for stage in ("The arithmetic", "After fold_batch_norm", "refused", "the border"):
        assert stage in text


def test_the_fifth_tutorial_shows_every_step_of_a_rewrite():
    text = SCRIPTS[4].read_text()
    for stage in ("its left side is a pattern", "One rule fires", "Why it fires", "strict", "own"):
        assert stage in text


def test_the_layout_tutorial_shows_every_step():
    text = (ROOT / "tutorials" / "06_layout.py").read_text()
    for stage in ("filled up", "operator demands", "choice problem", "The choice for the network"):
        assert stage in text


def test_the_schedule_tutorial_shows_every_step():
    text = (ROOT / "tutorials" / "07_schedule_a_convolution.py").read_text()
    for stage in ("textbook", "vector register", "in a register", "register tile", "Winograd"):
        assert stage in text


def test_the_memory_tutorial_shows_every_stage():
    text = (ROOT / "tutorials" / "08_memory_planning.py").read_text()
    for stage in ("Live ranges", "lower bound", "STRATEGIES", "verifier", "poisoned", "picture"):
        assert stage in text
