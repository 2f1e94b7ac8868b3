from __future__ import annotations

import pytest

from tests.cuda.ptxas import find_tool


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Return nvcc's path, for ptxas; skip the test where there is none."""
    return _tool("nvcc")


@pytest.fixture(scope="session")
def nvdisasm() -> str:
    """Return nvdisasm's path; skip the test where there is none."""
    return _tool("nvdisasm")


def _tool(name: str) -> str:
    found = find_tool(name)
    if found is None:
        pytest.skip(f"no {name} on PATH, in CUDA_HOME or from nvidia-cuda-{name}")
    return found
