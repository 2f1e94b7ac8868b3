"""scaled_dot_product_attention of PyTorch stays one kernel, in each of its forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxc

torch = pytest.importorskip("torch")


class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Attention of its inputs, with fixed options."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, *inputs: Any) -> Any:
        """Return the attended values."""
        return torch.nn.functional.scaled_dot_product_attention(*inputs, **self.options)


def tensor(*shape: int) -> Any:
    """Return random floats, those of one shape equal in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def boolean_mask() -> Any:
    """Return where keys are seen; one row sees none."""
    mask = tensor(2, 1, 6, 6) > 0
    mask[0, 0, 2] = False
    return mask


def float_mask() -> Any:
    """Return what is added; one row is -inf."""
    mask = tensor(2, 1, 6, 6)
    mask[1, 0, 3] = -float("inf")
    return mask


@pytest.mark.parametrize(
    ("options", "groups", "mask"),
    [
        pytest.param({}, 4, None, id="plain"),
        pytest.param({"is_causal": True, "scale": 0.5}, 4, None, id="causal"),
        pytest.param({}, 4, boolean_mask, id="boolean mask"),
        pytest.param({}, 4, float_mask, id="float mask"),
        pytest.param({"enable_gqa": True}, 2, None, id="grouped"),
    ],
)
def test_one_attention_kernel(options: dict[str, Any], groups: int, mask: Any) -> None:
    inputs = [tensor(2, 4, 6, 16), tensor(2, groups, 6, 16), tensor(2, groups, 6, 16)]
    if mask is not None:
        inputs.append(mask())
    module = Attention(**options).eval()
    model = relaxc.compile(module, tuple(inputs), threads=1)
    names = [kernel["name"] for kernel in model.report.kernels]
    assert names.count("attention") == 1
    assert not any("softmax" in name or "matmul" in name for name in names)
    wanted = module(*inputs).numpy()
    np.testing.assert_allclose(np.asarray(model(*inputs)), wanted, rtol=1e-4, atol=1e-5)
