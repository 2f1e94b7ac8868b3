"""Tensors move into huge pages: the same addresses, the same elements, fewer pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from relaxc import huge_pages  # noqa: E402

HUGE = 2 << 20


def huge_bytes(address: int) -> int:
    """Return how much of the mapping around an address lies in huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if bounds:
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its pages")
def test_large_tensors_move_into_huge_pages_as_they_are():
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not pages.exists() or "[never]" in pages.read_text():
        pytest.skip("this system has no huge pages")
    large, small = torch.arange(4 * HUGE, dtype=torch.uint8), torch.arange(5)
    want, address, before = large.clone(), large.data_ptr(), huge_bytes(large.data_ptr())
    huge_pages.collapse([large, small, torch.zeros(0)])
    assert large.data_ptr() == address and torch.equal(large, want)
    assert huge_bytes(address) > before or before >= 4 * HUGE


def test_a_system_without_them_is_left_alone(monkeypatch):
    monkeypatch.setattr(huge_pages, "_advise", lambda: None)
    large = torch.ones(HUGE)
    huge_pages.collapse([large])
    assert (large == 1).all()


def test_weights_move_once_after_some_calls_and_again_after_a_change(monkeypatch):
    from relaxc.torch_compile import backend, prepared_weights

    moved = []
    monkeypatch.setattr(prepared_weights, "collapse", lambda tensors: moved.append(list(tensors)))
    torch._dynamo.reset()
    layer, x = torch.nn.Linear(24, 16).eval(), torch.randn(2, 24)
    fast = torch.compile(layer, backend=backend, options={"strict": True})
    with torch.no_grad():
        for change in range(2):
            layer.weight.mul_(2)
            for _ in range(prepared_weights.SETTLED + 3):
                torch.testing.assert_close(fast(x), layer(x))
            assert len(moved) == change + 1
    assert all(tensor.numel() for tensors in moved for tensor in tensors)
