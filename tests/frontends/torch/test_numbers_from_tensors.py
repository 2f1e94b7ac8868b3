"""Numbers read from tensors: negative ones, sizes, and Python's arithmetic on them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from frontends.errors import InvalidModel  # noqa: E402
from frontends.torch import import_torch  # noqa: E402
from frontends.torch.symbolic_numbers import SymbolicNumbers  # noqa: E402
from relaxc.errors import RunError  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_same,
    operators,
    run,
)

X = torch.tensor([0.5, 1.5, -2.0])


def check(function, number):
    """Import once; compare with eager for the number and another one of its kind."""
    model = import_torch(Lambda(function), (X, number))
    for given in (number, -number if number.is_floating_point() else number - 1):
        expected = function(X, given)
        results = expected if isinstance(expected, list) else [expected]
        assert_same(run(model, X, given), [torch.as_tensor(r) for r in results])
    return model


def test_an_integer_that_is_no_size_may_be_negative():
    def function(x, n):
        n = n.item()
        return [n, x * n, x + (n // 2 - 3) * 2, x / (n % 5 + 1), torch.full((3,), n), x + n / 4]

    assert "tensor_to_shape" not in str(check(function, torch.tensor(-7)).module)


def test_arithmetic_on_a_float():
    def function(x, y):
        y = y.item()
        return [
            x * y, x * (y * 2 + 1) / 3, torch.add(x, x, alpha=y), torch.where(x > y, x, -y),
            x.clamp(min=y), x + y**2, x * torch.sym_sqrt(y * y), x - torch.sym_max(y, 1.0),
        ]  # fmt: skip

    check(function, torch.tensor(2.5))


def test_a_number_and_a_size():
    def function(x, n):
        n = n.item()
        torch._check(n >= 0)
        torch._check(n <= 3)
        return [x[:n] * n, torch.zeros(n + 1) + n]

    assert operators(check(function, torch.tensor(2)))["call_pure_packed"] == 1


def test_a_form_without_a_translation_is_named():
    from sympy import Function, Symbol

    numbers = SymbolicNumbers(lambda value: value, lambda expr: None, lambda value: value)
    numbers.tensors["f0"] = None
    with pytest.raises(InvalidModel, match="Strange"):
        numbers.tensor(Function("Strange")(Symbol("f0")))


def test_a_number_that_is_divided_by_is_not_zero() -> None:
    """A processor would end the process."""

    class Groups(torch.nn.Module):
        def forward(self, count, x):
            k = count.item()
            torch._check(x.shape[0] % k == 0)
            return x.view(k, -1).sum(0)

    inputs = (torch.tensor(2), torch.arange(6.0))
    grouped = relaxc.compile(Groups().eval(), inputs, threads=1, progress=False)
    torch.testing.assert_close(grouped(torch.tensor(3), inputs[1]), torch.tensor([6.0, 9.0]))
    with pytest.raises(RunError):
        grouped(torch.tensor(0), inputs[1])
