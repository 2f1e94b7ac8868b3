"""Conditions on sizes: a call that torch's trace does not hold for is refused, no other one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from frontends.torch import import_torch  # noqa: E402
from frontends.torch.check_messages import check_at, message_of  # noqa: E402
from relaxc.errors import InvalidInput, RunError  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda  # noqa: E402

Dim, assert_close = torch.export.Dim, torch.testing.assert_close
ROWS = ({0: Dim("n")},)


def compiled(function, inputs, dims=ROWS):
    shapes = {"tensors": dims}
    return relaxc.compile(
        Lambda(function), inputs, dynamic_shapes=shapes, threads=1, progress=False
    )


def rows(count):
    return torch.arange(count * 3.0).reshape(count, 3)


def in_pairs(x):
    return x.view(-1, 2, 3) + 1


def checked(x):
    torch._check(x.shape[0] % 2 == 0, lambda: "an even number of rows")
    return in_pairs(x)


def asserted(x):
    assert x.shape[0] % 2 == 0, f"even, not {x.shape[0]}"
    return x * 2


def branching(x):
    return x * 2 if x.shape[0] % 4 == 0 else x + 1


def in_halves(x):
    return x.unflatten(0, (2, -1))


def first_two(x):
    return x[:2] * 2


@pytest.mark.parametrize(
    ("function", "fitting", "refused", "message"),
    [
        (in_pairs, (8, 2, 0), (7, 1), "(not as many elements|it does not hold).*x.view"),
        (checked, (8, 2, 0), (7, 1), r"an even number of rows \(.*n is "),
        (asserted, (8, 2, 0), (7, 1), r"even, not \{x.shape\[0\]\} \(.*n is "),
        (branching, (8, 12), (7, 6), "traced the branch that is taken where n % 4 == 0 .*x \\* 2"),
        (in_halves, (8, 2, 0), (7, 1), "it does not hold that .*x.unflatten"),
        (first_two, (8, 2, 3), (1,), "a slice is not within its axis .*x\\[:2\\]"),
    ],
)
def test_what_the_code_requires_of_sizes_is_checked_in_a_call(function, fitting, refused, message):
    model = compiled(function, (rows(8),))
    for count in fitting:
        assert_close(model(rows(count)), function(rows(count)))
    for count in refused:
        with pytest.raises(RunError, match=message):
            model(rows(count))
    assert_close(model(rows(8)), function(rows(8)))  # as usable as before


def test_how_tensors_lie_in_memory_refuses_no_size():
    """torch notes much of it for these: numbers of elements that are not 0 or 1, and strides."""

    def function(image):
        x = torch.nn.functional.max_pool2d(image, 3, stride=2, padding=1)
        tokens = x.flatten(2).transpose(1, 2)
        half = tokens[:, : (tokens.shape[1] + 1) // 2]
        return half.transpose(1, 2).reshape(x.shape[0] * 3, -1) * 2

    dims = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    model = compiled(function, (torch.rand(3, 3, 10, 14),), dims)
    for batch, height, width in ((3, 10, 14), (1, 1, 1), (1, 2, 1), (2, 3, 1), (1, 5, 4)):
        image = torch.rand(batch, 3, height, width)
        assert_close(model(image), function(image), rtol=1e-4, atol=1e-4)


def test_sizes_of_inputs_are_checked_by_what_is_said_of_them():
    n = Dim("n", min=2, max=9)
    model = compiled(lambda x, y: x + y[1:], (rows(4), rows(5)), ({0: n}, {0: n + 1}))
    assert_close(model(rows(2), rows(3)), rows(2) + rows(3)[1:])
    with pytest.raises(InvalidInput, match="axis 0 has size 4, and must have 1 . n, which is 3"):
        model(rows(2), rows(4))
    for count in (1, 10):
        with pytest.raises(InvalidInput, match="bound of"):
            model(rows(count), rows(count + 1))


def test_a_program_from_elsewhere_keeps_all_that_torch_asserts():
    program = torch.export.export(
        Lambda(checked).eval(),
        (rows(8),),
        dynamic_shapes=(ROWS,),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    model = relaxc.compile(program, threads=1, progress=False)
    assert_close(model(rows(6)), checked(rows(6)))
    with pytest.raises(RunError, match=r"it does not hold that s\d+ % 2 == 0"):
        model(rows(7))


def test_a_message_on_a_number_that_only_the_data_decides():
    def function(x):
        count = (x > 0).sum().item()
        torch._check(count < 4, lambda: "at most three of them")
        return torch.full((2,), count)

    model = compiled(function, (torch.tensor([1.0, 2.0, -1.0, -1.0]),), ({},))
    with pytest.raises(RunError, match=r"at most three of them \(.*: torch._check"):
        model(torch.ones(4))


def test_a_line_is_the_users_innermost_one():
    def twice(x):
        return torch.special.bessel_j0(x)

    with pytest.raises(Exception, match="return torch.special.bessel_j0"):
        import_torch(Lambda(lambda x: twice(x) + 1), (torch.ones(2),))


def test_messages_of_checks_are_read_from_the_source(tmp_path):
    lines = [
        "torch._check(a > b, lambda: 'one')",
        "torch._check(",
        "    a > b,",
        "    message=lambda: f'{a} of {b}',",
        ")",
        "assert a, words()",
        "a + b",
    ]
    file = tmp_path / "code.py"
    file.write_text("\n".join(lines))
    told = [message_of(check_at(str(file), line)) for line in (1, 2, 4, 6, 7)]
    assert told == ["one", "{a} of {b}", "{a} of {b}", "", ""]
    assert check_at(str(tmp_path / "none.py"), 1) is None


@pytest.mark.parametrize(("factor", "rest"), [(2, 1), (3, 0), (1, 2)])
def test_a_size_given_by_another_alone(factor, rest):
    n = Dim("n", max=20)
    model = compiled(
        lambda x: (x[1:] * 2, x.sum(0)), (rows(5 * factor + rest),), ({0: factor * n + rest},)
    )
    for size in (3 * factor + rest, 20 * factor + rest):
        x = rows(size)
        assert_close(model(x), (x[1:] * 2, x.sum(0)))
    wrong = [factor * 21 + rest, 3 * factor + rest + 1] if factor > 1 else [23, 1]
    for size in wrong:
        with pytest.raises((InvalidInput, RunError), match="n_1"):
            model(rows(size))
