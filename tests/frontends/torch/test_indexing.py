"""Reading and writing at computed places against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_matches_eager,
    assert_same,
    operators,
    run,
)

X = torch.arange(60.0).reshape(3, 4, 5)
ROWS = torch.tensor([-1, 0, 2, -3])


def test_negative_indices_count_from_the_end():
    """T1: t[:, [-1, 0]]."""
    assert_matches_eager(lambda x: x[:, [-1, 0]], X)
    assert_matches_eager(lambda x, i: x[i], X, ROWS)
    assert_matches_eager(lambda x, i: x[:, :, i], X, ROWS.int())


def test_boolean_masks_that_are_constant():
    """T1: boolean indices."""
    mask = torch.tensor([True, False, True])
    assert_matches_eager(lambda x: x[mask], X)
    pairs = (torch.arange(12) % 5 == 0).reshape(3, 4)
    assert_matches_eager(lambda x: x[pairs], X)


def test_masks_of_the_input_are_counted_when_the_model_runs():
    module = Lambda(lambda x, m: x[m] + 1)
    model = import_torch(module, (X, torch.tensor([True, False, True])))
    for mask in ([True, False, True], [False] * 3, [False, True, False]):
        assert_same(run(model, X, torch.tensor(mask)), X[torch.tensor(mask)] + 1)


def test_several_index_tensors():
    i, j = torch.tensor([0, -1]), torch.tensor([[1], [-2]])
    assert_matches_eager(lambda x, a, b: [x[a, b], x[:, a, b], x[a, :, b]], X, i, j)
    assert_matches_eager(lambda x: [x[[0, -1], [1, 2]], x[[0, 1], :, [1, -1]]], X)


def test_known_indices_are_one_kernel_without_a_check():
    model = assert_matches_eager(lambda x: x[[0, -1], [1, 2]], X)
    assert operators(model) == {"reshape": 1, "call_tir": 1}


def test_embedding():
    layer = torch.nn.Embedding(11, 4, padding_idx=0).eval()
    assert_matches_eager(layer, torch.tensor([[0, 3], [10, 2]]))


def test_gather_and_index_select():
    index = torch.tensor([[[0, 1, 2, 3, 0]], [[3, 2, 1, 0, 1]]])
    assert_matches_eager(lambda x, i: x.gather(1, i), X, index)
    assert_matches_eager(lambda x, i: x.index_select(-1, i), X, torch.tensor([4, 0, 0]))


def test_scatter():
    index = torch.tensor([[0, 1, 1, 3]])
    assert_matches_eager(lambda x, i: x.scatter(1, i, 7.0), X[:, :, 0], index)
    assert_matches_eager(
        lambda x, i, s: x.scatter_add(1, i, s), X[:, :, 0], index, torch.ones(2, 6)
    )


def test_writes_through_views():
    """T8: an assignment to a slice, a row, and a stride of the tensor."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[1:2, :, -1] = 9
        y[-1] = y[0]
        return y

    assert_matches_eager(function, X)


def test_triangles():
    assert_matches_eager(lambda x: [x.tril(), x.triu(1), x.tril(-1)], X)


def test_topk_in_order():
    x = torch.randperm(20, generator=torch.Generator().manual_seed(3)).float().reshape(4, 5)
    assert_matches_eager(lambda v: [*v.topk(3), *v.topk(2, dim=0, largest=False)], x)
