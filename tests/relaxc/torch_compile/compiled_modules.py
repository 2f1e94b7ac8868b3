"""What tests of the backend compile, and how results are compared with eager's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relaxc.torch_compile import backend, compiled_graphs  # noqa: E402

STRICT = {"strict": True}


def compiled(function, dynamic=None, **options):
    return torch.compile(function, backend=backend, dynamic=dynamic, options={**STRICT, **options})


def close(have, want):
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


def small_net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)]
    return nn.Sequential(*layers).eval()


def outcomes() -> list[str]:
    return [record.outcome for record in compiled_graphs()]
