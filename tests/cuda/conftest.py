from __future__ import annotations

import pytest

from tests.cuda.ptxas import find_nvcc


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Return nvcc's path; skip the test where there is none."""
    found = find_nvcc()
    if found is None:
        pytest.skip("no nvcc on PATH, in CUDA_HOME or from nvidia-cuda-nvcc: cannot run ptxas")
    return found
