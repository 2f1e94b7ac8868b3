"""Every test begins without compiled graphs, Dynamo's and ours."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fresh_graphs():
    torch = pytest.importorskip("torch")
    from relaxc.torch_compile import records

    torch._dynamo.reset()
    records.clear()
    yield
    torch._dynamo.reset()
