"""Operands in dtypes, or without elements, that TVM's own operators refuse or get wrong."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda, assert_same  # noqa: E402

functional = torch.nn.functional


def check(function, *inputs, tolerance=1e-5):
    """Compare with eager; TVM's own lowering takes fewer dtypes than `relaxc.compile`."""
    result = relaxc.compile(Lambda(function), inputs, threads=1)(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    assert_same([torch.as_tensor(r).numpy() for r in results], function(*inputs), tolerance)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def test_integers_to_the_power_of_a_tensor():
    bases = torch.tensor([3, -1, -1, 1, 2, -7, 0, 5])
    exponents = torch.tensor([[5], [0], [-3], [-2], [62], [63]])
    check(lambda x, y: x**y, bases, exponents)
    check(lambda x, y: x**y, bases.int(), exponents.int())
    check(lambda y: 3**y, torch.tensor([1, 0, 4, 33]))


def test_booleans():
    a, b = torch.tensor([[True, False], [True, True]]), torch.tensor([True, False])

    def logic(a, b):
        return [
            torch.add(a, b, alpha=True),
            torch.add(a, b, alpha=False),
            a.amax(1),
            a.amin(0),
            a.max(),
            a.min(),
            a.sign(),
            a.isnan(),
            a.isinf(),
            torch.isnan(b.long()),
        ]

    check(logic, a, b)


def test_bfloat16():
    def half(x):
        x = x.bfloat16()
        pooled = functional.max_pool2d(x, 2, 1)
        normal = functional.group_norm(x, 2, torch.ones(4).bfloat16() * 2)
        return [pooled.float(), normal.float()]

    check(half, numbers(2, 4, 5, 5), tolerance=1e-2)


def test_float64_keeps_its_digits():
    def double(x):
        return [
            functional.instance_norm(x, weight=torch.full((3,), 2.0, dtype=torch.float64)),
            functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
        ]

    check(double, numbers(2, 3, 4, 4).double(), tolerance=1e-12)


def test_reductions_of_no_elements():
    def reduce(x):
        return [
            x.sum(0),
            x.mean(0),
            x.prod(0),
            x.var(0),
            torch.var_mean(x, 0)[1],
            (x > 0).any(0),
            (x > 0).all(0),
            x.amax(1),
            x @ torch.ones(3, 2),
            torch.ones(4, 0) @ x,
        ]

    check(reduce, torch.empty(0, 3))


def test_tensors_filled_with_infinities_and_nan():
    model = relaxc.compile(
        Lambda(lambda x: [torch.full_like(x, float("-inf")), x.new_full(x.shape, float("nan"))]),
        (numbers(3),),
        dynamic_shapes=(({0: "n"},),),
        threads=1,
    )
    infinite, undefined = (torch.as_tensor(r) for r in model(numbers(5)))
    assert infinite.tolist() == [float("-inf")] * 5
    assert undefined.isnan().tolist() == [True] * 5


def test_numbers_read_from_a_tensor():
    for x in (torch.tensor(5), torch.tensor(5.5), torch.tensor(True)):
        model = relaxc.compile(Lambda(lambda x: x.item()), (x,), threads=1)
        assert torch.as_tensor(model(x)).item() == x.item()
    check(lambda x: x.half() * x[1].item() + x[0].item(), numbers(3), tolerance=1e-2)
    leaky = Lambda(lambda x: functional.leaky_relu(x, x[0].item()))
    with pytest.raises(relaxc.UnsupportedOperator, match="only the data decides as this argument"):
        relaxc.compile(leaky, (numbers(3),))


def test_booleans_padded_and_written():
    mask, places = torch.tensor([True, False, False]), torch.tensor([0, 1, 1])
    wide = torch.tensor([True, False, True])

    def function(x, i, v):
        added = x.index_put((i,), v, accumulate=True)
        return functional.pad(x, (1, 2), value=2), added, x.index_put((x,), v[0], accumulate=True)

    check(function, mask, places, wide)


def test_operators_along_the_axis_of_a_single_number():
    x = numbers(3)[0]
    check(lambda x: [x.softmax(0), x.log_softmax(-1), functional.dropout(x, 1.0)], x)
    kept = Lambda(lambda x: functional.dropout(x, 0.5, True))
    assert float(relaxc.compile(kept, (x,), threads=1)(x)) in (0.0, float(2 * x))


def test_an_embedding_shrinks_rows_in_place():
    table = numbers(7, 3) * 2

    def embed(indices, table):
        return functional.embedding(indices, table, max_norm=0.9)

    indices = torch.tensor([[0, 3], [3, 6]])
    model = relaxc.compile(Lambda(embed), (indices, table.clone()), threads=1)
    rows, new_table = model(indices, table.clone())
    expected = table.clone()
    torch.testing.assert_close(torch.as_tensor(rows), embed(indices, expected))
    torch.testing.assert_close(torch.as_tensor(new_table), expected)


def test_strides_within_a_view_of_a_storage():
    view = torch.arange(20.0)[5:15]
    check(lambda x: torch.as_strided(x, (2, 2), (1, 2), 10), view)
    # The storage around a view that the program itself takes is known.
    check(lambda x: (x + 1)[2:, 1:].as_strided((3, 2), (4, 1), 1), numbers(4, 4))
    check(lambda x: (x + 1).view(2, 8)[1].as_strided((3, 2), (4, 1), 1), numbers(4, 4))
    with pytest.raises(relaxc.UnsupportedOperator, match="beyond the elements"):
        relaxc.compile(Lambda(lambda x: torch.as_strided(x, (2, 2), (1, 2), 0)), (view,))
