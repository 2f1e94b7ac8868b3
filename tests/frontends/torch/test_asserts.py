"""Asserts that no result depends on: the run fails with torch's message."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from frontends.errors import InvalidModel  # noqa: E402
from frontends.torch import import_torch  # noqa: E402
from relaxc.errors import RunError  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_same,
    run,
)


def check(function, fitting, refused, message, *, eagers_own=True):
    """Assert eager's numbers for what fits, and a run that fails with a message for the other.

    Where a graph holds a number's expression, torch gives its assert a message of its own.
    """
    model = import_torch(Lambda(function), (fitting,))
    assert_same(run(model, fitting), function(fitting))
    with pytest.raises(Exception, match=message if eagers_own else ""):
        function(refused)
    with pytest.raises(Exception, match=message):
        run(model, refused)
    assert_same(run(model, fitting), function(fitting))  # as usable as before


def test_a_class_that_is_too_large():
    def function(classes):
        return torch.nn.functional.one_hot(classes, 3)

    check(function, torch.tensor([0, 2]), torch.tensor([0, 3]), "smaller than num_classes")
    check(function, torch.tensor([0, 2]), torch.tensor([-1, 2]), "must be non-negative")


def test_an_error_of_a_call_tells_the_message_and_the_users_line():
    def function(x):
        torch._assert_async((x > 0).all(), "only positive numbers")
        return x.sqrt(), x.neg()

    x = torch.tensor([4.0, 9.0])
    model = relaxc.compile(Lambda(function), (x,))
    with pytest.raises(RunError, match="only positive numbers.*py:"):
        model(-x)
    assert model(x)[0].tolist() == [2.0, 3.0]


def test_conditions_on_a_number_that_only_the_data_decides():
    def function(x):
        count = (x > 0).sum().item()
        torch._check(count > 1)
        torch._check(count % 2 == 0)
        return torch.full((2,), count), x * 2

    told = r"it does not hold that .*test_asserts.py:\d+: torch._check"
    for refused in ([0.5, -1.0, -1.0], [5.0, 1.0, 2.0]):
        fitting = torch.tensor([0.5, 1.0, -1.0])
        check(function, fitting, torch.tensor(refused), told, eagers_own=False)


def test_a_truth_that_is_read_from_a_tensor():
    def function(x):
        torch._check((x > 0).any().item())
        return x + 1

    told = r"it does not hold that .*test_asserts.py:\d+: torch._check"
    check(function, torch.tensor([1.0, -1.0]), torch.tensor([-1.0, -2.0]), told, eagers_own=False)


def test_an_assert_of_a_branch_that_is_taken():
    def below(x):
        torch._assert_async((x > -5).all(), "far below")
        return x * 2

    def function(x):
        return [torch.cond(x.sum() > 0, lambda x: x + 1, below, (x,))]

    check(function, torch.tensor([3.0, -9.0, 7.0]), torch.tensor([3.0, -9.0, 2.0]), "far below")


def test_a_condition_that_never_holds_is_told_at_import():
    def function(x):
        torch._assert_async(torch.tensor(False), "never")
        return x

    with pytest.raises(InvalidModel, match="never"):
        import_torch(Lambda(function), (torch.ones(2),))


def test_an_extremum_of_no_elements():
    def function(x):
        return x[x > 0].max()

    check(function, torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0]), "")
    for reduce in (torch.max, torch.amin, torch.argmax, lambda x: x.min(0)):
        with pytest.raises(InvalidModel, match=r"no elements|numel\(\) == 0|empty|zero"):
            import_torch(Lambda(reduce), (torch.ones(0, 2),))
