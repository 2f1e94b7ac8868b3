"""Bags of embedding rows: every mode, rows that do not count, weights of samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402

INDICES = torch.tensor([1, 2, 4, 2, 2, 0, 9])
OFFSETS = torch.tensor([0, 3, 3, 5])  # one bag is empty, one holds nothing but row 2


class Bags(nn.Module):
    """One layer of each kind on the same bags."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        kinds = itertools.product(("sum", "mean", "max"), (None, 2, -1), (False, True))
        self.layers = nn.ModuleList(
            nn.EmbeddingBag(10, 4, mode=mode, padding_idx=pad, include_last_offset=last)
            for mode, pad, last in kinds
        )
        self.eval()

    def forward(self, indices, offsets):
        ends = torch.cat([offsets, torch.tensor([len(INDICES)])])
        return [
            layer(indices, ends if layer.include_last_offset else offsets) for layer in self.layers
        ]


def test_every_mode_with_rows_that_do_not_count():
    assert_matches_eager(Bags(), INDICES, OFFSETS)


def test_weights_of_samples_and_bags_of_one_length():
    layer = nn.EmbeddingBag(10, 4, mode="sum", padding_idx=2).eval()
    weights = torch.linspace(-1, 2, 7)
    assert_matches_eager(
        lambda i, o, w: [layer(i, o, w), layer(i[:6].view(2, 3), None, w[:6].view(2, 3))],
        INDICES, OFFSETS, weights,
    )  # fmt: skip


def test_torch_compile_takes_it_without_gradients_and_with():
    layer = nn.EmbeddingBag(10, 4, mode="mean", padding_idx=2)
    fast = torch.compile(layer, backend="relaxc")
    with torch.no_grad():
        torch.testing.assert_close(fast(INDICES, OFFSETS), layer(INDICES, OFFSETS))
    assert relaxc.torch_compile.compiled_graphs()[-1].outcome == "compiled"


@pytest.mark.parametrize("offsets", [[0, 10**9], [0, -1], [0, 7], [1, 2], [2, 1], [0, 3, 2]])
def test_bags_that_do_not_divide_the_input_are_refused(offsets: list[int]) -> None:
    """Unchecked they would be read from anywhere in memory."""
    module, given = torch.nn.EmbeddingBag(10, 3).eval(), torch.tensor([1, 2, 3])
    model = relaxc.compile(module, (given, torch.tensor([0] * len(offsets))), threads=1)
    fine = torch.tensor([0, 2, 3][: len(offsets)])  # a bag may be empty, the last one too
    with torch.no_grad():
        np.testing.assert_allclose(model(given, fine), module(given, fine), rtol=1e-6)
    with pytest.raises(relaxc.RunError, match="offsets have to begin with 0"):
        model(given, torch.tensor(offsets))
