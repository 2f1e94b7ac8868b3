"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os

import pytest

# Tests run in parallel processes; engines that take every core in each of them would only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Keep what collecting has loaded out of later garbage collections: 0.3 s each, else."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_update_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Hugging Face libraries from trying the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
