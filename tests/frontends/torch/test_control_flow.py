"""torch.cond, while_loop, scan and map by both paths, against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops import scan, while_loop  # noqa: E402
from torch._higher_order_ops.map import map as map_rows  # noqa: E402

import relaxc  # noqa: E402
from relaxc.torch_compile import backend  # noqa: E402


class Net(nn.Module):
    """A function of a module with one linear layer and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer = function, nn.Linear(4, 4)
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(self.layer, *tensors)


def by_export(module: nn.Module, inputs: Sequence[torch.Tensor], rows: bool) -> Any:
    shapes = {"tensors": ({0: "n"}, *({} for _ in inputs[1:]))} if rows else None
    return relaxc.compile(module, tuple(inputs), dynamic_shapes=shapes, threads=1, progress=False)


def by_dynamo(module: nn.Module, inputs: Sequence[torch.Tensor], rows: bool) -> Any:
    torch._dynamo.reset()
    return torch.compile(
        module, backend=backend, dynamic=rows, options={"strict": True, "threads": 1}
    )


PATHS = pytest.mark.parametrize("path", [by_export, by_dynamo])


@torch.no_grad()
def check(path: Any, function: Any, *calls: Sequence[torch.Tensor], rows: bool = False) -> Any:
    """Compile once for the first call, with a symbolic first axis if `rows`; compare all calls."""
    module = Net(function)
    fast = path(module, calls[0], rows)
    for inputs in calls:
        want, have = module(*inputs), fast(*inputs)
        want, have = ([t] if isinstance(t, torch.Tensor) else list(t) for t in (want, have))
        assert len(want) == len(have)
        for left, right in zip(have, want, strict=True):
            left, right = torch.as_tensor(left), torch.as_tensor(right)
            assert left.dtype == right.dtype
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    return fast


def x(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


@PATHS
def test_cond_with_parameters_and_symbolic_rows(path):
    def function(layer, data):
        def other(data):
            return data - layer.bias, data.sum(0)

        return torch.cond(
            data.sum() > 0, lambda data: (layer(data) + 1, data.mean(0)), other, (data,)
        )

    check(path, function, [x(3).abs()], [-x(5).abs()], [x(2).abs()], rows=True)


@PATHS
def test_cond_within_cond(path):
    def function(layer, data):
        def outer(data):
            return torch.cond(data.max() > 2, lambda d: layer(d) * 2, lambda d: d + 3, (data,))

        return torch.cond(data.sum() > 0, outer, lambda d: -layer(d), (data,)) + 1

    check(path, function, [x().abs()], [x().abs() + 2], [-x().abs()])


@PATHS
def test_cond_on_a_size(path):
    def function(layer, data):
        return torch.cond(data.shape[0] > 4, lambda d: layer(d), lambda d: d * 2, (data,))

    check(path, function, [x(3)], [x(6)], [x(2)], rows=True)


@PATHS
def test_while_loop_whose_steps_the_data_counts(path):
    def function(layer, data):
        return while_loop(
            lambda count, data: data.abs().max() < 100,
            lambda count, data: (count + 1, data * 2 + layer.bias),
            (torch.zeros((), dtype=torch.int64), data),
        )

    check(path, function, [x()], [x() * 200], [x(4) / 100], rows=True)


@PATHS
def test_while_loop_that_carries_an_integer(path):
    def function(layer, data):
        _, last = while_loop(
            lambda i, d: i < d.shape[0], lambda i, d: (i + 1, d + i * layer.bias), (0, data)
        )
        return last

    check(path, function, [x(3)], [x(7)], rows=True)


@PATHS
def test_a_short_while_loop_is_unrolled(path):
    def function(layer, data):
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, d: i < 3, lambda i, d: (i + 1, layer(d)), (start, data))[1]

    check(path, function, [x()])


@PATHS
def test_while_loop_within_cond_within_while_loop(path):
    def function(layer, data):
        def inner(data):
            return while_loop(
                lambda i, d: i < 100, lambda i, d: (i + 1, d * 0.99 + layer.bias / 100),
                (torch.ones((), dtype=torch.int64), data),
            )[1]  # fmt: skip

        def body(count, data):
            return count + 1, torch.cond(data.sum() > 5, inner, lambda d: d + 1, (data,))

        start = torch.ones((), dtype=torch.int64)
        return while_loop(lambda count, _: count < 70, body, (start, data))[1]

    check(path, function, [x() / 10])


@PATHS
@pytest.mark.parametrize("rows", [3, 200])
def test_scan_of_known_length(path, rows):
    def function(layer, data):
        return scan(lambda s, row: (s * 0.5 + layer(row), s * row), torch.zeros(4), data)

    check(path, function, [x(rows)])


@PATHS
def test_scan_of_symbolic_length(path):
    def function(layer, data):
        return scan(lambda s, row: (s * 0.5 + layer(row), s * row), torch.ones(4), data)

    check(path, function, [x(3)], [x(9)], [x(2)], rows=True)


@PATHS
def test_scan_backwards_over_another_axis(path):
    def function(layer, data):
        return scan(lambda s, row: (s + row, s.clone()), torch.zeros(3), data, dim=1, reverse=True)

    check(path, function, [x()])


@PATHS
def test_map(path):
    def function(layer, data):
        return map_rows(lambda row, scale: layer(row) * scale, data, data[0] + 1)

    check(path, function, [x()])


@torch.no_grad()
def test_no_two_steps_draw_the_same_numbers():
    def function(layer, data):
        return scan(lambda s, row: (s + 1, torch.rand(4) + row * 0), torch.zeros(4), data)[1]

    drawn = by_export(Net(function), (x(200),), False)(x(200))
    assert len({float(value) for value in drawn.flatten()}) > 780  # of 800; floats may meet


def test_operators_inside_are_listed_too():
    def function(layer, data):
        return torch.cond(
            data.sum() > 0, lambda d: torch.special.i1(d), lambda d: torch.special.i0(d), (data,)
        )

    with pytest.raises(relaxc.UnsupportedOperator) as caught:
        relaxc.compile(Net(function), (torch.eye(3),))
    assert "special_i1" in str(caught.value) and "aten.i0" in str(caught.value)


@torch.no_grad()
def test_regions_that_are_compiled_once():
    @torch.compiler.nested_compile_region
    def block(x, weight):
        return torch.relu(x @ weight) + 1

    def function(x, weight):
        return block(block(x, weight), weight)

    torch._dynamo.reset()
    fast = torch.compile(function, backend=backend, options={"strict": True, "threads": 1})
    torch.testing.assert_close(fast(x(), torch.eye(4) * 2), function(x(), torch.eye(4) * 2))


def gradient(function, data):
    weight = torch.full((4, 4), 0.1, requires_grad=True)
    function(data, weight).sum().backward()
    return weight.grad


def test_a_cond_has_gradients():
    def function(data, weight):
        return torch.cond(data.sum() > 0, lambda d: d @ weight, lambda d: d * 2, (data,))

    torch._dynamo.reset()
    fast = torch.compile(function, backend=backend, options={"strict": True, "threads": 1})
    torch.testing.assert_close(gradient(fast, x().abs()), gradient(function, x().abs()))


def test_a_loop_with_gradients_is_left_to_eager():
    def function(data, weight):
        return while_loop(lambda d: d.sum() < 9, lambda d: (d @ weight + 1,), (data,))[0]

    torch._dynamo.reset()
    fast = torch.compile(function, backend=backend)
    torch.testing.assert_close(gradient(fast, x()), gradient(function, x()))
