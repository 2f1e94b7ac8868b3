from __future__ import annotations

import pytest

from tests.cuda.ptxas import find_tool


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Return nvcc's path; skip the test where there is none."""
    found = find_tool("nvcc")
    if found is None:
        pytest.skip("no nvcc on PATH, in CUDA_HOME or from nvidia-cuda-nvcc: cannot run ptxas")
    return found


@pytest.fixture(scope="session")
def nvdisasm() -> str:
    """Return nvdisasm's path; skip the test where there is none."""
    found = find_tool("nvdisasm")
    if found is None:
        pytest.skip("no nvdisasm on PATH, in CUDA_HOME or from nvidia-cuda-nvdisasm")
    return found
